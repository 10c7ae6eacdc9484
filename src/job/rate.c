/* rate = 5e-5 · (10 with LoRA) · (2000 / C)^P
 *
 * C is the model's width. J. Schulman and Thinking Machines Lab, LoRA Without Regret (2025), found by sweeps that the best rate
 * of LoRA is about 10 times that of full fine-tuning whatever the rank (with alpha 32 divided by the rank), and P by family:
 * 0.781 for Llama, 0.0775 for Qwen. A family that they did not sweep gets the lower of the two.
 */
#include "job/rate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double RATE_FULL = 5e-5, LORA_FACTOR = 10, WIDTH = 2000, POWER_LLAMA = 0.781, POWER_QWEN = 0.0775;

enum status rate_choose(const struct options *o, const struct family *family, const struct model_config *config, double *rate,
                        char words[static RATE_WORDS])
{
    bool llama = !strcmp(family->model_type, "llama"), qwen = !strncmp(family->model_type, "qwen", 4);
    bool full = o->finetuning_type == CHOICE_finetuning_type_full;
    double wide = WIDTH / (double)config->channels;
    double power = llama ? POWER_LLAMA : qwen ? POWER_QWEN : wide < 1 ? POWER_LLAMA : POWER_QWEN;
    if (o->optim != CHOICE_optim_adamw)
        return fail(
            ERR_ARGUMENT,
            "--learning-rate auto is a rule for AdamW: with --optim %s give a number (Lion's authors take 3 to 10 times less "
            "than for AdamW)",
            options_word(OPTION_optim, (int)o->optim));
    char digits[32];
    snprintf(digits, sizeof digits, "%.2e", RATE_FULL * (full ? 1 : LORA_FACTOR) * pow(wide, power));
    *rate = strtod(digits, NULL);
    snprintf(words, RATE_WORDS,
             "%g = %g%s x (%g / %lld channels)^%g%s, by the rule of LoRA Without Regret (docs/learning-rate.md)", *rate,
             RATE_FULL, full ? "" : " x 10 for LoRA", WIDTH, (long long)config->channels, power,
             llama || qwen ? "" : ", the lower of Llama's and Qwen's");
    return OK;
}
