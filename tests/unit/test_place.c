/* Where rank 0 waits: the listeners that it opens, and no others. */
#include "dist/place.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

#include "dist/tcp.h"
#include "ports.h"
#include "test.h"

static void a_port_that_is_taken_is_named(void **state)
{
    (void)state;
    struct place first = {.address = {"127.0.0.1"}, .secret = "a"}, second;
    struct place_listeners listeners, other;
    assert_ok(place_listen(&listeners, &first, 0));
    second = first;
    assert_fails(place_listen(&other, &second, 0), ERR_RANK, "choose another MASTER_PORT");
    place_stop(&listeners);
}

static void address_of(int door, char text[PLACE_TEXT])
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    assert_int_equal(getsockname(door, (struct sockaddr *)&at, &size), 0);
    if (at.ss_family == AF_UNIX)
        snprintf(text, PLACE_TEXT, "unix");
    else
        assert_int_equal(getnameinfo((struct sockaddr *)&at, size, text, PLACE_TEXT, NULL, 0, NI_NUMERICHOST), 0);
}

/* Seen to fail: a secret made rank 0 wait at all addresses, whatever MASTER_ADDR was. */
static void rank_0_waits_at_its_address_and_at_no_other(void **state)
{
    (void)state;
    const char *const addresses[] = {"127.0.0.1", "127.0.0.2", "::1", "localhost"};
    char at[PLACE_TEXT];
    for (int i = 0; i < 8; i++) {
        struct place place = {.port = i < 4 ? 0 : free_port()};
        struct place_listeners listeners;
        snprintf(place.address[0], PLACE_TEXT, "%s", addresses[i % 4]);
        snprintf(place.secret, sizeof place.secret, i < 4 ? "secret" : "");
        assert_ok(place_listen(&listeners, &place, 0));
        assert_int_equal(listeners.count, 1);
        address_of(listeners.socket[0], at);
        if (i >= 4)
            assert_string_equal(at, "unix");
        else if (i == 3)
            assert_true(!strcmp(at, "127.0.0.1") || !strcmp(at, "::1"));
        else
            assert_string_equal(at, addresses[i]);
        place_stop(&listeners);
    }
}

/* One that a router or a service has: nobody is let in by another door instead. */
static void an_address_of_another_machine_is_refused_or_another_is_named(void **state)
{
    (void)state;
    struct launcher launcher = {LAUNCHER_VARIABLES, 0, 2, 0, "198.51.100.7", free_port()};
    struct place place = {.address = {"198.51.100.7"}, .secret = "secret"};
    struct place_listeners listeners;
    struct group *group;
    assert_fails(place_listen(&listeners, &place, 0), ERR_ARGUMENT, "its machine has no such address");
    assert_non_null(strstr(status_message(), "HONE_LISTEN is the address of its own at which it waits"));
    setenv("HONE_SECRET", "0123456789abcdef", 1);
    setenv("HONE_LISTEN", "198.51.100.8", 1);
    assert_fails(tcp_open(&group, &launcher), ERR_ARGUMENT, "wait for the others at 198.51.100.8");
    unsetenv("HONE_SECRET");
    launcher.address = "127.0.0.1"; /* without a secret there is no such door at all */
    assert_fails(tcp_open(&group, &launcher), ERR_ARGUMENT, "HONE_LISTEN is 198.51.100.8: set HONE_SECRET");
    unsetenv("HONE_LISTEN");
}

/* Two addresses that face others get two listeners at one port, and the machine's own none. */
static void the_watch_waits_at_addresses_that_face_other_machines(void **state)
{
    (void)state;
    struct place place = {.address = {"127.0.0.1", "127.0.0.2"}, .secret = "secret"}, facing = {.secret = "secret"};
    struct place_listeners listeners;
    char own[PLACE_ADDRESSES][PLACE_NUMERIC], at[PLACE_TEXT];
    assert_ok(place_listen(&listeners, &place, 0));
    assert_int_equal(listeners.count, 2);
    address_of(listeners.socket[1], at);
    assert_string_equal(at, "127.0.0.2");
    assert_true(place.port > 0);
    place_stop(&listeners);
    place_addresses(own);
    place_face(&facing, own);
    assert_string_equal(facing.address[0], "");
    char other[PLACE_ADDRESSES][PLACE_NUMERIC] = {"198.51.100.7", "no number", "127.0.0.9"};
    place_face(&facing, other);
    assert_string_equal(facing.address[1], "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_waits_at_its_address_and_at_no_other),
        cmocka_unit_test(an_address_of_another_machine_is_refused_or_another_is_named),
        cmocka_unit_test(the_watch_waits_at_addresses_that_face_other_machines),
        cmocka_unit_test(a_port_that_is_taken_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
