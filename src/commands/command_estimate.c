/* Estimates of time as JSON. */
#include "commands/command_estimate.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/record.h"
#include "perf/cluster.h"

/* The rows of a step are shared: the plan is that of the rank with the largest share. */
static enum status share_rows(struct options *own)
{
    int64_t rows;
    if (own->world_size == 1)
        return own->source[OPTION_network] ? fail(ERR_ARGUMENT, "--network does nothing without --world-size: give both") : OK;
    if (__builtin_mul_overflow(own->per_device_train_batch_size, own->gradient_accumulation_steps, &rows))
        return fail(ERR_ARGUMENT, "--per-device-train-batch-size times --gradient-accumulation-steps is too large");
    if (rows < own->world_size)
        return fail(
            ERR_ARGUMENT,
            "a step has %lld rows, too few for --world-size %lld: give --per-device-train-batch-size %lld or more, which all "
            "ranks share",
            (long long)rows, (long long)own->world_size, (long long)own->world_size);
    if (strcmp(own->resident_layers, "auto") != 0 && strcmp(own->resident_layers, "all") != 0)
        return fail(ERR_ARGUMENT,
                    "--world-size compares what ranks divide of a run that is on the card: leave out --resident-layers %s",
                    own->resident_layers);
    if (own->activation_offloading == CHOICE_activation_offloading_on)
        return fail(ERR_ARGUMENT,
                    "--world-size compares what ranks divide of a run that is on the card: leave out --activation-offloading on");
    own->resident_layers = "all";
    own->activation_offloading = CHOICE_activation_offloading_off;
    own->per_device_train_batch_size = divide_up(rows, own->world_size);
    own->gradient_accumulation_steps = 1;
    return OK;
}

enum status estimate_options(const struct options *values, const char *card, struct arena *arena, struct options *own)
{
    struct buffer name = {0};
    if (values->source[OPTION_device])
        return fail(ERR_ARGUMENT, "%s and --gpu both say where to compute: --gpu plans for a card that need not be there",
                    values->source[OPTION_device]);
    *own = *values;
    enum status status = buffer_format(&name, "kernels:%s", card);
    own->device = status == OK ? arena_text(arena, name.data, (int64_t)strlen(name.data)) : NULL;
    buffer_free(&name);
    if (status == OK && own->device)
        status = share_rows(own);
    return own->device ? status : ERR_MEMORY;
}

/* --- as JSON ------------------------------------------------------------------------------------------------------------ */

static json_t *rate_json(const struct gpu_spec *card, enum work work, enum dtype dtype)
{
    char text[256];
    double flops = gpu_spec_flops(card, work, dtype), peak = gpu_spec_peak(card, work, dtype), bytes = gpu_spec_bytes(card, work);
    double all = work_kinds[work].rate == CARD_LINK ? card->link : card->bandwidth;
    if (card->measured && work != WORK_copy)
        snprintf(text, sizeof text, flops > 0 ? "%.4g TFLOPS, measured" : "%.4g GB/s, measured",
                 flops > 0 ? flops * 1e-12 : bytes * 1e-9);
    else if (peak > 0)
        snprintf(text, sizeof text, "%.0f%% of %.4g TFLOPS", 100 * flops / peak, peak * 1e-12);
    else
        snprintf(text, sizeof text, "%.0f%% of %.4g GB/s", 100 * bytes / all, all * 1e-9);
    return json_string(text);
}

static json_t *work_json(const struct estimate *e)
{
    json_t *rows = json_array();
    for (int i = 0; i < WORK_COUNT; i++) {
        const struct estimate_work *w = &e->work[i];
        const struct work_kind *kind = &work_kinds[i];
        bool by_card = kind->share == 0 && !work_moves((enum work)i);
        if (w->commands > 0)
            json_array_append_new(rows, json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:o, s:s}", "kind", kind->id, "work",
                                                  kind->words, "commands", w->commands, "flops", w->flops, "bytes", w->bytes,
                                                  "seconds", w->seconds, "roofline_seconds", w->roofline_seconds, "rate",
                                                  rate_json(e->card, (enum work)i, e->dtype), "source",
                                                  e->card->measured && i != WORK_copy ? "measured"
                                                  : by_card                           ? e->card->matmul_source
                                                                                      : kind->source));
    }
    return rows;
}

static json_t *layout_json(const struct scale_layout *l)
{
    static const struct record_field fields[] = {
        RECORD_AS("layout", struct scale_layout, name),
        RECORD_AS("what", struct scale_layout, words),
        RECORD(struct scale_layout, rank_bytes),
        RECORD(struct scale_layout, fits),
        RECORD_AS("payload_bytes", struct scale_layout, payload),
        RECORD_AS("sent_bytes", struct scale_layout, sent),
        RECORD_AS("communication_seconds", struct scale_layout, seconds),
        RECORD_AS("step_seconds", struct scale_layout, after_seconds),
        RECORD_AS("tokens_per_second", struct scale_layout, after_tokens),
        RECORD_AS("overlapped_step_seconds", struct scale_layout, under_seconds),
        RECORD_AS("overlapped_tokens_per_second", struct scale_layout, under_tokens),
        {0},
    };
    return record_json(fields, l);
}

static json_t *world_json(const struct build *b, const struct estimate *e, int64_t bytes)
{
    struct scale s;
    json_t *layouts = json_array();
    scale_make(b, e, b->job->options->world_size, b->job->options->network * 1e9, bytes, b->session.info.memory, &s);
    for (int i = 0; i < SCALE_COUNT; i++)
        json_array_append_new(layouts, layout_json(&s.layout[i]));
    return json_pack("{s:I, s:f, s:f, s:f, s:o}", "ranks", (json_int_t)s.ranks, "network_gbps", s.network * 1e-9, "network_share",
                     s.share, "latency_seconds", s.latency, "layouts", layouts);
}

struct summary {
    const char *card, *name, *source;
    bool measured, stand_in, graphs, synthetic_rows;
    double step_seconds, roofline_step_seconds, flops_step_seconds, tokens_per_second, roofline_tokens_per_second;
    double flops_tokens_per_second;
    double flops_per_step, tokens_per_step, micro_batches_per_step, keys_per_query, launches_per_step, gap_seconds;
    double copied_bytes_per_step, copy_seconds, copy_wait_seconds;
    int64_t rows, longest_row, steps;
    double run_seconds;
};

json_t *estimate_json(const struct build *b, const struct estimate *e, int64_t bytes)
{
    static const struct record_field fields[] = {
        RECORD(struct summary, card),
        RECORD(struct summary, name),
        RECORD(struct summary, source),
        RECORD(struct summary, measured),
        RECORD(struct summary, stand_in),
        RECORD(struct summary, graphs),
        RECORD(struct summary, synthetic_rows),
        RECORD(struct summary, rows),
        RECORD(struct summary, longest_row),
        RECORD(struct summary, tokens_per_step),
        RECORD(struct summary, micro_batches_per_step),
        RECORD(struct summary, keys_per_query),
        RECORD(struct summary, flops_per_step),
        RECORD(struct summary, launches_per_step),
        RECORD(struct summary, gap_seconds),
        RECORD(struct summary, copied_bytes_per_step),
        RECORD(struct summary, copy_seconds),
        RECORD(struct summary, copy_wait_seconds),
        RECORD(struct summary, step_seconds),
        RECORD(struct summary, tokens_per_second),
        RECORD(struct summary, roofline_step_seconds),
        RECORD(struct summary, roofline_tokens_per_second),
        RECORD(struct summary, flops_step_seconds),
        RECORD(struct summary, flops_tokens_per_second),
        RECORD(struct summary, steps),
        RECORD(struct summary, run_seconds),
        {0},
    };
    struct summary summary = {
        .card = e->card->name,
        .name = e->card->words,
        .source = e->card->source,
        .measured = e->card->measured,
        .stand_in = e->card->stand_in,
        .graphs = e->graphs,
        .synthetic_rows = e->synthetic,
        .rows = e->rows,
        .longest_row = e->longest,
        .tokens_per_step = e->tokens,
        .micro_batches_per_step = e->micro_batches,
        .keys_per_query = e->keys,
        .flops_per_step = e->flops,
        .launches_per_step = e->commands,
        .gap_seconds = e->gap_seconds,
        .copied_bytes_per_step = e->work[WORK_copy].bytes,
        .copy_seconds = e->work[WORK_copy].seconds,
        .copy_wait_seconds = e->wait_seconds,
        .step_seconds = e->seconds,
        .tokens_per_second = e->tokens / e->seconds,
        .roofline_step_seconds = e->roofline_seconds,
        .roofline_tokens_per_second = e->tokens / e->roofline_seconds,
        .flops_step_seconds = e->flops_seconds,
        .flops_tokens_per_second = e->tokens / e->flops_seconds,
        .steps = e->steps,
        .run_seconds = (double)e->steps * e->seconds,
    };
    json_t *out = record_json(fields, &summary);
    if (out)
        json_object_set_new(out, "work", work_json(e));
    if (out && b->job->options->world_size > 1)
        json_object_set_new(out, "world", world_json(b, e, bytes));
    return out;
}
