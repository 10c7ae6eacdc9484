/* The input is what a stranger's run folder has for hone report and hone watch: run.json and, after zero bytes, metrics.jsonl,
 * what is added to it while hone watch looks on, and run.lock. Whatever is in them, a page is made that a browser takes for
 * nothing but text, whose command starts nothing but hone train, and neither the page nor a message has what cannot be shown. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/report/report_page.h"
#include "cli/view/summary.h"
#include "fuzz.h"

enum { WIDTHS = 3 };

static bool is_shown(const char *text, int64_t length, bool page)
{
    for (int64_t i = 0; i < length;) {
        bool shown;
        int n = utf8_next(text + i, length - i, &shown);
        bool joins = page && n == 3 && (!memcmp(text + i, "\u200c", 3) || !memcmp(text + i, "\u200d", 3));
        if (!shown && text[i] != '\n' && text[i] != '\t' && !joins)
            return false;
        i += n;
    }
    return true;
}

static bool begins(const char *at, const char *end, const char *words)
{
    return (size_t)(end - at) >= strlen(words) && !memcmp(at, words, strlen(words));
}

/* One character of HTML's text, and the next. */
static char decode(const char **at, const char *end)
{
    static const struct {
        const char *name;
        char sign;
    } entities[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&#39;", '\''}};
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++)
        if (begins(*at, end, entities[i].name)) {
            *at += strlen(entities[i].name);
            return entities[i].sign;
        }
    return *(*at)++;
}

/* Outside of quotes a shell sees options, blanks, and signs that mean nothing to it. */
static void check_command(const char *at, const char *end)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,:@%= ";
    bool quoted = false, octal = false;
    char before = 0;
    PROMISE(begins(at, end, "hone train") && !memchr(at, '\n', (size_t)(end - at)));
    while (at < end) {
        char c = decode(&at, end);
        if (quoted && octal && c == '\\')
            for (int i = 0; i < 3; i++)
                PROMISE(at < end && *at >= '0' && *at++ <= '7');
        else if (quoted)
            quoted = c != '\'';
        else if (c == '\'')
            quoted = before != '\\', octal = before == '$';
        else
            PROMISE(strchr(plain, c) || (c == '$' && begins(at, end, "&#39;")) || (c == '\\' && begins(at, end, "&#39;")));
        if (!quoted && c == ' ')
            PROMISE((begins(at, end, "--") || begins(at, end, "train")) && !begins(at, end, "--on-finish"));
        before = quoted ? 0 : c;
    }
    PROMISE(!quoted);
}

static void check_page(const char *page, int64_t size)
{
    const char *end = page + size, *at = page;
    static const char *const known[] = {
        "<!doctype", "<html", "<meta",   "<title",   "<style",  "<main",       "<h1",      "<h2",      "<h3",   "<p",
        "<div",      "<span", "<b>",     "<section", "<table",  "<tr",         "<th",      "<td",      "<code", "<svg",
        "<line",     "<text", "<circle", "<i ",      "<figure", "<figcaption", "<details", "<summary", "</"};
    PROMISE(is_shown(page, size, true));
    PROMISE(memmem(page, (size_t)size, "Content-Security-Policy", 23) != NULL);
    for (; (at = memchr(at, '<', (size_t)(end - at))); at++) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found |= begins(at, end, known[i]);
        PROMISE(found);
    }
    const char *command = memmem(page, (size_t)size, "<pre>hone train", 15);
    if (command) {
        const char *last = memmem(command, (size_t)(end - command), "</pre>", 6);
        PROMISE(last != NULL);
        check_command(command + 5, last);
    }
}

static void look(const struct history *h)
{
    static const int columns[WIDTHS] = {1, 40, 200};
    struct screen screen;
    char lines[SCREEN_SIZE], place[SUMMARY_PLACE];
    summary_screen(h, &screen);
    screen_line(&screen, lines);
    PROMISE(is_shown(lines, (int64_t)strlen(lines), false));
    for (int i = 0; i < WIDTHS; i++)
        screen_draw(&screen, (struct look){.columns = columns[i], .rows = 24, .unicode = i > 0}, lines);
    PROMISE(is_shown(lines, (int64_t)strlen(lines), false));
    summary_place(h, place);
    summary_result(h, place);
    if (summary_verdict(h) != OK)
        PROMISE(is_shown(status_message(), (int64_t)strlen(status_message()), false) && !strchr(status_message(), '\n'));
    json_t *tree = summary_json(h);
    char *text = json_write(tree, 0);
    PROMISE(text != NULL);
    json_text_free(text);
    json_decref(tree);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"run.json", "metrics.jsonl", "run.lock"};
    struct fuzz_part input = {data, size}, part[4];
    struct history h;
    struct file_map page;
    for (int i = 0; i < 4; i++)
        part[i] = fuzz_next(&input);
    fuzz_put(names[0], part[0].data, part[0].size);
    fuzz_put(names[1], part[1].data, part[1].size);
    fuzz_put(names[2], part[3].data, part[3].size);
    if (history_open(&h, fuzz_dir()) != OK)
        return;
    look(&h);
    if (part[2].size)
        PROMISE(file_append(fuzz_path(names[1]), (const char *)part[2].data, (int64_t)part[2].size) == OK);
    if (history_update(&h) == OK) {
        look(&h);
        PROMISE(report_page_write(&h, fuzz_path("report.html")) == OK);
        PROMISE(file_map(&page, fuzz_path("report.html")) == OK);
        check_page((const char *)page.data, page.size);
        file_unmap(&page);
        if (h.run && h.step_count)
            fuzz_accept();
    }
    history_close(&h);
}
