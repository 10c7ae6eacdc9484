/* Frequencies of rotary positions. */
#include "models/rotary.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

int64_t rotary_pairs(const struct model_config *config)
{
    return (int64_t)((double)config->head_size * config->rope.part) / 2;
}

int64_t rotary_sets(const struct model_config *config)
{
    return config->rope.kind == ROPE_LONG ? 2 : 1;
}

int32_t rotary_set(const struct model_config *config, int64_t tokens)
{
    return config->rope.kind == ROPE_LONG && tokens > config->rope.original_max_position;
}

/* Llama 3 stretches slow rotations by `factor`, keeps fast ones, and interpolates between. */
static float llama3(const struct rope_config *rope, float frequency)
{
    double length = (double)rope->original_max_position, wave = (double)(float)(2 * pi / (double)frequency);
    if (wave < length / rope->high_freq_factor)
        return frequency;
    if (wave > length / rope->low_freq_factor)
        return frequency / (float)rope->factor;
    float smooth = (float)((length / wave - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor));
    return (1 - smooth) * (frequency / (float)rope->factor) + smooth * frequency;
}

/* The channel whose pair turns so many times within the original length. */
static double yarn_channel(const struct rope_config *rope, double turns, int64_t channels)
{
    return (double)channels * log((double)rope->original_max_position / (turns * 2 * pi)) / (2 * log(rope->theta));
}

/* YaRN keeps pairs that turn often, stretches those that turn rarely, and has a ramp between. */
static float yarn(const struct rope_config *rope, float period, int64_t i, int64_t pairs)
{
    double low = yarn_channel(rope, rope->beta_fast, 2 * pairs), high = yarn_channel(rope, rope->beta_slow, 2 * pairs);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(2 * pairs - 1));
    high += low == high ? 0.001 : 0; /* as in the models' own code */
    float ramp = ((float)i - (float)low) / (float)(high - low);
    float keep = 1 - (ramp < 0 ? 0 : ramp > 1 ? 1 : ramp);
    return 1 / ((float)rope->factor * period) * (1 - keep) + 1 / period * keep;
}

void rotary_frequencies(const struct model_config *config, float *out)
{
    const struct rope_config *rope = &config->rope;
    int64_t pairs = rotary_pairs(config);
    for (int64_t set = 0; set < rotary_sets(config); set++)
        for (int64_t i = 0; i < pairs; i++) {
            float exponent = (float)(2 * i) / (float)(2 * pairs), *to = &out[set * pairs + i];
            float period = (float)pow((double)(float)rope->theta, (double)exponent);
            switch (rope->kind) {
            case ROPE_DEFAULT: *to = 1 / period; break;
            case ROPE_LINEAR: *to = 1 / period / (float)rope->factor; break;
            case ROPE_LLAMA3: *to = llama3(rope, 1 / period); break;
            case ROPE_YARN: *to = yarn(rope, period, i, pairs); break;
            case ROPE_PROPORTIONAL:
                *to = i < (int64_t)(rope->turning * (double)pairs) ? 1 / period / (float)rope->factor : 0;
                break;
            case ROPE_LONG: *to = 1 / (rope->factors[set][i] * period); break;
            }
        }
}
