/* The input is what a stranger's run folder has for hone report and hone watch: run.json and, after zero bytes, metrics.jsonl,
 * what is added to it while hone watch looks on, run.lock, and the name of one more file. A file that is "-" is not there; what
 * begins with '=' is not added to the metrics but takes their place; and a run.lock that ends with '!' is held. Whatever is in
 * them, a page is made that a browser takes for nothing but text, whose command starts nothing but hone train, and neither the
 * page nor a message has what cannot be shown. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/lock.h"
#include "base/utf8.h"
#include "cli/report/report_page.h"
#include "cli/view/summary.h"
#include "fuzz.h"

enum { PARTS = 5, NAME_SIZE = 256 };

UNFOLLOWED static bool is_shown(const char *text, int64_t length, bool page)
{
    for (int64_t i = 0; i < length;) {
        bool shown;
        if (text[i] >= ' ' && text[i] < 0x7f) {
            i++;
            continue;
        }
        int n = utf8_next(text + i, length - i, &shown);
        bool joins = page && n == 3 && (!memcmp(text + i, "\u200c", 3) || !memcmp(text + i, "\u200d", 3));
        if (!shown && text[i] != '\n' && text[i] != '\t' && !joins)
            return false;
        i += n;
    }
    return true;
}

UNFOLLOWED static bool begins(const char *at, const char *end, const char *words)
{
    return (size_t)(end - at) >= strlen(words) && !memcmp(at, words, strlen(words));
}

/* One character of HTML's text, and the next. */
UNFOLLOWED static char decode(const char **at, const char *end)
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
UNFOLLOWED static void check_command(const char *at, const char *end)
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

UNFOLLOWED static void check_page(const char *page, int64_t size)
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
            found |= end - at > 1 && at[1] == known[i][1] && begins(at, end, known[i]);
        PROMISE(found);
    }
    const char *command = memmem(page, (size_t)size, "<pre>hone train", 15);
    if (command) {
        const char *last = memmem(command, (size_t)(end - command), "</pre>", 6);
        PROMISE(last != NULL);
        check_command(command + 5, last);
    }
}

/* --- looking ---------------------------------------------------------------------------------------------------------------- */

static void check_message(void)
{
    PROMISE(is_shown(status_message(), (int64_t)strlen(status_message()), false) && !strchr(status_message(), '\n'));
}

static void check_screens(const struct history *h)
{
    static const struct look looks[] = {
        {1, 24, false, false}, {40, 24, false, true}, {80, 3, false, true}, {200, 24, false, true}, {200, 24, true, true}};
    struct screen screen;
    char lines[SCREEN_SIZE];
    summary_screen(h, &screen);
    screen_line(&screen, lines);
    PROMISE(is_shown(lines, (int64_t)strlen(lines), false));
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        screen_draw(&screen, looks[i], lines);
        PROMISE(looks[i].colour || is_shown(lines, (int64_t)strlen(lines), false));
    }
}

static void look_at(const struct history *h)
{
    char place[SUMMARY_PLACE];
    check_screens(h);
    summary_place(h, place);
    summary_result(h, place);
    if (summary_verdict(h) != OK)
        check_message();
    json_t *tree = summary_json(h);
    char *text = json_write(tree, 0);
    PROMISE(text != NULL);
    json_text_free(text);
    json_decref(tree);
}

static void report(const struct history *h)
{
    struct file_map page;
    PROMISE(report_page_write(h, fuzz_path("report.html")) == OK);
    PROMISE(file_map(&page, fuzz_path("report.html")) == OK);
    check_page((const char *)page.data, page.size);
    file_unmap(&page);
    if (h->run && h->step_count)
        fuzz_accept();
}

static void look_on(struct fuzz_part added)
{
    struct history h;
    if (history_open(&h, fuzz_dir()) != OK) {
        check_message();
        return;
    }
    look_at(&h);
    if (added.size && *added.data == '=')
        fuzz_put("metrics.jsonl", added.data + 1, added.size - 1);
    else if (added.size)
        PROMISE(file_append(fuzz_path("metrics.jsonl"), (const char *)added.data, (int64_t)added.size) == OK);
    if (history_update(&h) == OK) {
        look_at(&h);
        report(&h);
    }
    history_close(&h);
}

/* --- the folder ------------------------------------------------------------------------------------------------------------- */

static void put(const char *name, struct fuzz_part part)
{
    if (part.size == 1 && *part.data == '-')
        file_remove(fuzz_path(name));
    else
        fuzz_put(name, part.data, part.size);
}

/* Returns whether it was made. */
static bool put_other(struct fuzz_part part, char name[static NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "%.*s", (int)part.size, (const char *)part.data);
    return *name && !strchr(name, '/') && file_create(fuzz_path(name), "x", 1) == OK;
}

void fuzz_input(const uint8_t *data, size_t size)
{
    struct fuzz_part input = {data, size}, part[PARTS];
    struct lock lock;
    char other[NAME_SIZE];
    bool held = false;
    for (int i = 0; i < PARTS; i++)
        part[i] = fuzz_next(&input);
    put("run.json", part[0]);
    put("metrics.jsonl", part[1]);
    put("run.lock", part[3]);
    bool more = put_other(part[4], other);
    if (part[3].size && part[3].data[part[3].size - 1] == '!')
        PROMISE(lock_take(&lock, fuzz_path("run.lock"), LOCK_ALONE, false, &held) == OK && held);
    look_on(part[2]);
    if (held)
        lock_release(&lock);
    if (more)
        file_remove(fuzz_path(other));
}
