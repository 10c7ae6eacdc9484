/* What the model said, what it saw, and what it took. */
#include "cli/report/report_parts.h"

#include <stdio.h>
#include <string.h>

#include "cli/report/page.h"
#include "cli/view/quantities.h"

enum { PROMPTS_MAX = 12 };

/* --- samples -------------------------------------------------------------------------------------------------------------- */

static bool same_prompt(const struct history *h, int64_t a, int64_t b)
{
    return !strcmp(h->samples[a].prompt, h->samples[b].prompt);
}

static enum status put_answer(struct buffer *page, const char *when, const struct history_sample *s)
{
    TRY(page_format(page, "<div><h3>%s <span class=\"soft\">step %lld</span></h3>", when, (long long)s->step));
    return page_put(page, "<pre>", *s->text ? s->text : "(nothing)", "</pre></div>\n");
}

enum status report_samples(struct buffer *page, const struct history *h)
{
    int shown = 0;
    for (int64_t i = 0; i < h->sample_count && shown < PROMPTS_MAX; i++) {
        int64_t first = 0, last = i;
        while (!same_prompt(h, first, i))
            first++;
        if (first < i) /* it was shown with its first answer */
            continue;
        for (int64_t k = i; k < h->sample_count; k++)
            last = same_prompt(h, k, i) ? k : last;
        if (!shown++)
            TRY(page_format(page, "<h2>Answers before and after</h2>\n"));
        TRY(page_put(page, "<section class=\"card\"><p class=\"prompt\">", h->samples[i].prompt, "</p><div class=\"pair\">\n"));
        TRY(put_answer(page, h->samples[i].step ? "first" : "before", &h->samples[i]));
        if (last > i)
            TRY(put_answer(page, "after", &h->samples[last]));
        TRY(page_format(page, "</div></section>\n"));
    }
    return OK;
}

/* --- data ----------------------------------------------------------------------------------------------------------------- */

static enum status put_counts(struct buffer *page, const char *key, const char *label, const json_t *data, const json_t *eval,
                              bool always)
{
    if (!always && !page_number(data, key) && !page_number(eval, key))
        return OK;
    TRY(page_put(page, "<tr><th>", label, "</th><td class=\"n\">"));
    TRY(page_count(page, page_number(data, key)));
    if (eval) {
        TRY(page_format(page, "</td><td class=\"n\">"));
        if (json_object_get(eval, key)) /* of rows that were held back, the other column has what was read */
            TRY(page_count(page, page_number(eval, key)));
    }
    return page_format(page, "</td></tr>\n");
}

static enum status put_files(struct buffer *page, const char *which, const json_t *data)
{
    const json_t *file;
    size_t i;
    json_array_foreach(json_object_get(data, "files"), i, file)
    {
        TRY(page_put(page, "<p class=\"soft\">", which, ": "));
        TRY(page_put(page, "<code>", page_text(file, "path"), "</code>, "));
        TRY(page_count(page, page_number(file, "rows")));
        TRY(page_format(page, " rows</p>\n"));
    }
    return OK;
}

enum status report_data(struct buffer *page, const struct history *h)
{
    static const struct {
        const char *key, *label;
        bool always;
    } rows[] = {{"rows_read", "rows read", true},
                {"rows", "rows used", true},
                {"tokens", "tokens", true},
                {"trained_tokens", "tokens whose loss counts", true},
                {"longest_row", "tokens of the longest row", true},
                {"max_length", "max number of tokens of a row", true},
                {"truncated_rows", "rows truncated", false},
                {"split_rows", "rows split", false},
                {"dropped_rows", "rows dropped", false},
                {"lost_tokens", "tokens lost", false},
                {"skipped_rows", "rows skipped, which cannot be used", false},
                {"untrained_rows", "rows without a token to train", false},
                {"rows_without_template", "rows trained without the chat template, which hone chat uses", false}};
    const json_t *data = json_object_get(h->run, "data"), *eval = json_object_get(data, "eval");
    if (!json_object_get(data, "rows"))
        return OK;
    TRY(page_format(page, "<h2>Data</h2>\n<div class=\"card\"><table><tr><th></th><th class=\"n\">training</th>"));
    TRY(page_format(page, eval ? "<th class=\"n\">validation</th></tr>\n" : "</tr>\n"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        TRY(put_counts(page, rows[i].key, rows[i].label, data, eval, rows[i].always));
    TRY(page_format(page, "</table>\n"));
    TRY(put_files(page, "training", data));
    TRY(put_files(page, "validation", eval));
    return page_format(page, "</div>\n");
}

/* --- memory --------------------------------------------------------------------------------------------------------------- */

enum status report_memory(struct buffer *page, const struct history *h)
{
    const json_t *plan = json_object_get(h->run, "plan"), *row;
    double peak = (double)page_number(plan, "peak_bytes"), measured = (double)history_peak(h);
    char text[32];
    size_t i;
    if (!(peak > 0))
        return OK;
    TRY(page_format(page, "<h2>Memory</h2>\n<div class=\"card\"><table>\n"));
    json_array_foreach(json_object_get(plan, "table"), i, row)
    {
        double bytes = (double)page_number(row, "bytes"), share = bytes / peak;
        TRY(page_put(page, "<tr><th>", cli_block(json_object_get(plan, "table"), i), "</th>"));
        TRY(page_format(page, "<td class=\"n\">%s</td><td class=\"meter\"><i style=\"width:%.1f%%\"></i></td></tr>\n",
                        cli_bytes(text, bytes), 100 * (share > 0 && share < 1 ? share : share >= 1)));
    }
    TRY(page_format(page, "<tr class=\"sum\"><th>planned</th><td class=\"n\">%s</td><td></td></tr>\n", cli_bytes(text, peak)));
    if (measured > 0)
        TRY(page_format(page, "<tr><th>measured peak of the process</th><td class=\"n\">%s</td><td></td></tr>\n",
                        cli_bytes(text, measured)));
    return page_format(page, "</table></div>\n");
}
