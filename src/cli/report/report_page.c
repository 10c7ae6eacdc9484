/* The head of the page: its style, the state of the run, and the numbers that one looks for first. */
#include "cli/report/report_page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/report/page.h"
#include "cli/report/report_parts.h"
#include "cli/view/quantities.h"
#include "cli/view/summary.h"

static const char STYLE[] =
    ":root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --line: #dde1e6; --ink: #1c2127; --soft: #5c6670;\n"
    "  --blue: #1f6feb; --pale: #9cc3f7; --red: #c2410c; --good: #1a7f37; --warn: #9a6700; --bad: #c62828; }\n"
    "@media (prefers-color-scheme: dark) { :root { --page: #101418; --card: #181d23; --line: #2c343d; --ink: #e6eaee;\n"
    "  --soft: #94a0ab; --blue: #6cb0ff; --pale: #3f75b3; --red: #ff9d5c; --good: #4cc26b; --warn: #e3b341; --bad: #ff7b72; } }\n"
    "body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }\n"
    "main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }\n"
    "h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .7rem; }\n"
    "h3 { font-size: .9rem; margin: 0 0 .3rem; } .soft, .sub { color: var(--soft); font-weight: 400; }\n"
    ".sub { margin: .2rem 0 1.4rem; overflow-wrap: anywhere; }\n"
    ".state { font-size: .85rem; font-weight: 600; border: 1px solid currentColor; border-radius: 1rem; padding: .1rem .7rem;\n"
    "  margin-left: .6rem; vertical-align: middle; white-space: nowrap; }\n"
    ".good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }\n"
    ".sums { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.6rem, 1fr)); gap: .8rem; }\n"
    ".card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem 1rem; }\n"
    ".card b { display: block; font-size: 1.35rem; line-height: 1.25; font-variant-numeric: tabular-nums; }\n"
    ".sums span { color: var(--soft); font-size: .88rem; } .note { margin: .8rem 0 0; overflow-wrap: anywhere; }\n"
    "figure { margin: 0; overflow-x: auto; } .big { min-width: 38rem; } figcaption { font-weight: 600; font-size: .92rem; "
    "margin-bottom: .3rem; }\n"
    "svg { display: block; width: 100%; height: auto; }\n"
    ".charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: .8rem;\n"
    "  margin-top: .8rem; }\n"
    ".grid { stroke: var(--line); } .axis { stroke: var(--soft); }\n"
    ".tick { fill: var(--soft); font: 12px system-ui, sans-serif; }\n"
    ".line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .line.raw { stroke: var(--pale); stroke-width: 1; }\n"
    ".line.smooth { stroke: var(--blue); } .line.valid { stroke: var(--red); }\n"
    ".band { stroke: none; fill: var(--pale); opacity: .35; } .dot.valid { fill: var(--red); } .dot { fill: var(--blue); }\n"
    ".key { font-weight: 400; color: var(--soft); margin-left: .8rem; white-space: nowrap; }\n"
    ".key::before { content: \"\"; display: inline-block; width: 1rem; height: .2rem; margin-right: .35rem; vertical-align: "
    "middle;\n"
    "  background: var(--blue); } .key.raw::before { background: var(--pale); } .key.valid::before { background: var(--red); }\n"
    "table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 400; color: var(--soft); }\n"
    "td, th { padding: .3rem .8rem .3rem 0; border-top: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }\n"
    "tr:first-child > * { border-top: 0; } .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }\n"
    "tr.sum > * { font-weight: 600; color: var(--ink); } tr.given > * { color: var(--ink); font-weight: 600; }\n"
    ".meter { width: 40%; } .meter i { display: block; height: .55rem; margin-top: .45rem; border-radius: .3rem;\n"
    "  background: var(--blue); min-width: 1px; } .wide { overflow-x: auto; }\n"
    ".wide td, .wide th { white-space: nowrap; overflow-wrap: normal; }\n"
    "code, pre { font: .84rem/1.5 ui-monospace, \"DejaVu Sans Mono\", monospace; overflow-wrap: anywhere; }\n"
    "pre { white-space: pre-wrap; margin: 0; max-height: 24rem; overflow: auto; }\n"
    "details { margin-top: .8rem; } summary { cursor: pointer; color: var(--soft); } .prompt { font-weight: 600; margin: 0 0 "
    ".6rem; }\n"
    "section.card { margin-bottom: .8rem; }\n"
    ".pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1.2rem; }\n";

static enum status put_title(struct buffer *page, const struct history *h)
{
    static const char *const classes[] = {"warn", "good", "warn", "bad", "bad", "warn"}; /* by state */
    const char *model = cli_base_name(history_text(h, "model")), *method = history_text(h, "method");
    const char *began = page_text(history_piece(h), "began");
    TRY(page_begin(page, cli_base_name(h->dir), STYLE));
    TRY(page_put(page, "<h1>", *model ? model : "A run", ""));
    TRY(page_put(page, *method ? ", " : "", method, ""));
    TRY(page_format(page, " <span class=\"state %s\">%s%s</span></h1>\n", classes[h->state], history_state_name(h->state),
                    h->state == HISTORY_FINISHED && h->early ? ", stopped early" : ""));
    TRY(page_put(page, "<p class=\"sub\">", h->dir, ""));
    return page_put(page, *began ? ", last begun " : "", began, "</p>\n");
}

__attribute__((format(printf, 3, 4))) static enum status put_card(struct buffer *page, const char *says, const char *format, ...)
{
    char text[128];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    TRY(page_put(page, "<div class=\"card\"><b>", text, "</b>"));
    return page_put(page, "<span>", says, "</span></div>\n");
}

static enum status report_page_put_sums(struct buffer *page, const struct history *h)
{
    struct screen s;
    char text[32], says[64];
    const struct history_eval *best = history_best(h);
    int64_t peak = history_peak(h);
    summary_screen(h, &s);
    TRY(page_format(page, "<div class=\"sums\">\n"));
    snprintf(says, sizeof says, "of %lld step%s", (long long)s.total, plural(s.total));
    TRY(put_card(page, says, "%lld", (long long)s.done));
    if (!isnan(s.loss)) {
        snprintf(says, sizeof says, "loss, mean of about %d steps", MEAN_STEPS);
        TRY(put_card(page, says, "%.4f", s.loss));
    }
    if (best) {
        snprintf(says, sizeof says, "lowest validation loss, step %lld", (long long)best->step);
        TRY(put_card(page, says, "%.4f", best->loss));
    }
    if (summary_speed(h) > 0)
        TRY(put_card(page, "tokens per second " SUMMARY_SPEED, "%.0f", summary_speed(h)));
    if (s.seconds > 0)
        TRY(put_card(page, "steps and validations", "%s", screen_time(text, s.seconds)));
    if (peak > 0 || s.memory_bytes)
        TRY(put_card(page, peak > 0 ? "memory, at its peak" : "memory planned", "%s",
                     cli_bytes(text, (double)(peak > 0 ? peak : s.memory_bytes))));
    return page_format(page, "</div>\n");
}

/* What a reader must know of the run, or of the files that the page is made from. */
static enum status put_notes(struct buffer *page, const struct history *h)
{
    char result[SUMMARY_PLACE];
    if (summary_result(h, result))
        TRY(page_format(page, "<p class=\"note\">%sThe %s is that %s.</p>\n",
                        h->early ? "Early stopping ended the run: the validation loss fell no further. " : "",
                        strcmp(history_text(h, "method"), "full") ? "adapter" : "model", result));
    if (h->state != HISTORY_FINISHED && summary_verdict(h) != OK)
        TRY(page_put(page, "<p class=\"note bad\">", status_message(), "</p>\n"));
    if (h->state == HISTORY_RUNNING)
        TRY(page_format(page, "<p class=\"note warn\">The run is still running: this page has what it wrote so far.</p>\n"));
    if (h->skipped)
        TRY(page_format(page, "<p class=\"note warn\">%lld step%s skipped, with a loss or gradient that was not finite.</p>\n",
                        (long long)h->skipped, h->skipped == 1 ? " was" : "s were"));
    if (h->flagged > h->skipped)
        TRY(page_format(page, "<p class=\"note warn\">%lld more step%s unusual (key guard in metrics.jsonl).</p>\n",
                        (long long)(h->flagged - h->skipped), h->flagged - h->skipped == 1 ? " was" : "s were"));
    if (h->bad_lines)
        TRY(page_format(page, "<p class=\"note warn\">%lld line%s of metrics.jsonl could not be read, and %s passed over.</p>\n",
                        (long long)h->bad_lines, plural(h->bad_lines), h->bad_lines == 1 ? "was" : "were"));
    if (!h->run)
        TRY(page_format(page, "<p class=\"note warn\">There is no run.json that could be read: what the run was made from is not "
                              "known.</p>\n"));
    return OK;
}

static enum status report_page_put(struct buffer *page, const struct history *h)
{
    TRY(put_title(page, h));
    TRY(report_page_put_sums(page, h));
    TRY(put_notes(page, h));
    TRY(report_charts(page, h));
    TRY(report_samples(page, h));
    TRY(report_data(page, h));
    TRY(report_memory(page, h));
    TRY(report_origin(page, h));
    return page_format(page, "</main>\n</html>\n");
}

enum status report_page_write(const struct history *h, const char *path)
{
    struct buffer page = {0};
    enum status status = report_page_put(&page, h);
    if (status == OK)
        status = file_replace(path, page.data, page.size);
    buffer_free(&page);
    return status;
}
