/* What each command keeps when the process confines itself (base/confine.h). What the options name is kept by the table
 * of options, what is not an option's by that of commands, and what the machine has by the lists of places. */
#include <stdlib.h>
#include <string.h>

#include "base/cache_path.h"
#include "base/code.h"
#include "base/confine.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/installed.h"
#include "base/log.h"
#include "base/name.h"
#include "base/path_hint.h"
#include "commands/commands.h"
#include "device/cuda_api.h"
#include "hub/hub_cache.h"
#include "state/checkpoint.h"

/* --- what is kept ---------------------------------------------------------------------------------------------------------- */

enum {
    COMPUTES = 1,
    NETWORK = 2,
    WRITES_BELOW = 4,
    WRITES_NEXT_TO = 8,
    WRITES_RUN = 16,
    HUB = 32,
    TEMPORARY = 64,
    READS_ALL = 128,
    WRITES_HERE = 256,
    MAKES_FOLDER = 512,
};

/* WRITES_BELOW: into --output. WRITES_NEXT_TO: --output gets its name once it is whole, and so the folder that holds it is
 * written to; MAKES_FOLDER: and made. WRITES_RUN: the folder of a run, if there is no --output. READS_ALL, WRITES_HERE: another
 * tool's configuration names files of its own, and /adapter and /save of a chat are typed later. */
static const int keeps[COMMANDS] = {
    [COMMAND_PULL] = NETWORK | WRITES_BELOW,
    [COMMAND_INIT] = TEMPORARY | COMPUTES | WRITES_NEXT_TO | HUB,
    [COMMAND_TRAIN] = TEMPORARY | COMPUTES | WRITES_BELOW | HUB,
    [COMMAND_EVAL] = TEMPORARY | COMPUTES | HUB,
    [COMMAND_GENERATE] = TEMPORARY | COMPUTES | HUB,
    [COMMAND_CHAT] = TEMPORARY | COMPUTES | HUB | READS_ALL | WRITES_HERE,
    [COMMAND_PLAN] = TEMPORARY | COMPUTES | HUB,
    [COMMAND_INSPECT] = TEMPORARY | HUB,
    [COMMAND_KERNELS] = COMPUTES | WRITES_BELOW | HUB,
    [COMMAND_MERGE] = WRITES_NEXT_TO | MAKES_FOLDER | HUB,
    [COMMAND_EXPORT] = WRITES_NEXT_TO | MAKES_FOLDER | HUB,
    [COMMAND_QUANTIZE] = WRITES_NEXT_TO | MAKES_FOLDER | HUB,
    [COMMAND_REPORT] = WRITES_NEXT_TO | WRITES_RUN,
    [COMMAND_WATCH] = 0,
    [COMMAND_VERIFY] = HUB,
    [COMMAND_DEVICES] = COMPUTES,
    [COMMAND_BENCH] = TEMPORARY | COMPUTES | HUB,
    [COMMAND_CONFIG] = READS_ALL,
};

/* The system's own files: code, its settings, and what it says of the machine. */
static const char *const system_places[] = {"/usr",
                                            "/lib",
                                            "/lib32",
                                            "/lib64",
                                            "/libx32",
                                            "/opt",
                                            "/nix/store",
                                            "/run/opengl-driver",
                                            "/gnu/store",
                                            "/proc",
                                            "/sys",
                                            "/etc/ld.so.cache",
                                            "/etc/ld.so.conf",
                                            "/etc/ld.so.conf.d",
                                            "/etc/ld.so.preload",
                                            "/etc/alternatives",
                                            "/etc/localtime",
                                            "/etc/locale.alias",
                                            "/etc/nsswitch.conf",
                                            "/etc/passwd",
                                            "/etc/group",
                                            "/etc/hosts",
                                            "/etc/host.conf",
                                            "/etc/OpenCL",
                                            "/etc/nvidia",
                                            "/dev/random",
                                            "/dev/urandom",
                                            NULL};
static const char *const system_devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", NULL};

/* hone pull: names of hosts, and the certificates that are trusted. */
static const char *const network_places[] = {"/etc/resolv.conf",
                                             "/run/systemd/resolve",
                                             "/run/NetworkManager",
                                             "/run/resolvconf",
                                             "/etc/gai.conf",
                                             "/etc/services",
                                             "/etc/protocols",
                                             "/etc/ssl",
                                             "/etc/pki",
                                             "/etc/ca-certificates",
                                             "/etc/crypto-policies",
                                             "/var/lib/ca-certificates",
                                             NULL};
static const char *const certificates[] = {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", NULL};

/* Folders of libraries, besides those that a HONE_..._LIBRARY is in. */
static const char *const library_folders[] = {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "OCL_ICD_VENDORS", NULL};

/* Cards, as their drivers name them. */
static const char *const card_devices[] = {"/dev/dri",
                                           "/dev/kfd",
                                           "/dev/dxg",
                                           "/dev/nvidiactl",
                                           "/dev/nvidia-uvm",
                                           "/dev/nvidia-uvm-tools",
                                           "/dev/nvidia-modeset",
                                           "/dev/nvidia-caps",
                                           NULL};
enum { CARDS_MAX = 64 };

/* --- options --------------------------------------------------------------------------------------------------------------- */

/* The folder that a file or a folder of this name is in. */
static const char *folder_of(struct arena *arena, const char *path)
{
    char *folder = arena_text(arena, path, (int64_t)strlen(path));
    for (size_t n = folder ? strlen(folder) : 0; n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = 0;
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        slash[slash == folder] = 0;
    return slash ? folder : ".";
}

static void allow_source(struct confine *c, const char *path)
{
    confine_allow(c, path, CONFINE_READ);
    confine_allow_links(c, path);
}

/* A GGUF file in parts, of which the first is named: those next to it whose names begin the same. */
static void allow_parts_of(struct confine *c, struct arena *arena, const char *path)
{
    static const char first[] = "-00001-of-";
    const char *at = path ? strstr(path, first) : NULL, **names;
    const char *folder = at ? folder_of(arena, path) : NULL, *stem = at ? strrchr(path, '/') : NULL;
    int64_t count;
    stem = stem ? stem + 1 : path;
    if (!at || at < stem || directory_list(arena, folder, &names, &count) != OK)
        return;
    for (int64_t i = 0; i < count; i++)
        if (!strncmp(names[i], stem, (size_t)(at - stem) + 1) && name_ends_with(names[i], ".gguf"))
            confine_allow(c, file_join(arena, folder, names[i]), CONFINE_READ);
}

/* Files of data, separated by commas, each with a weight or without. */
static void allow_list(struct confine *c, struct arena *arena, const char *list)
{
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ",");
        char *path = arena_text(arena, at, (int64_t)n), *weight = path ? strrchr(path, ':') : NULL;
        allow_source(c, path ? path : "");
        if (weight) {
            *weight = 0;
            allow_source(c, path);
        }
        at += n + (at[n] == ',');
    }
}

static void allow_next_to(struct confine *c, struct arena *arena, const char *path)
{
    if (path && !file_is_special(path)) /* which gives way to no file */
        confine_allow(c, folder_of(arena, path), CONFINE_WRITE);
}

/* A model's or an adapter's folder in the cache may be a link to another disk, and so may its snapshot. */
static void allow_named(struct confine *c, struct arena *arena, const char *name, enum confine_right right)
{
    const char *cache, *path = NULL;
    if (!name || file_exists(name) || !hub_is_name(name) || hub_cache(arena, &cache) != OK)
        return;
    confine_allow(c, hub_folder(arena, cache, name), right);
    if (hub_find(arena, name, "main", &path) == OK && path) {
        allow_source(c, path);
        allow_parts_of(c, arena, path);
    }
}

/* An adapter names its base, which is read with it, after this. */
static bool names_base(const struct options *o)
{
    return o->adapter && !o->model_name_or_path;
}

static void allow_sources(struct confine *c, struct arena *arena, const struct options *o)
{
    const char *const paths[] = {o->model_name_or_path, o->adapter, o->init_adapter, o->resume,     o->run_dir,
                                 o->sample_prompts,     o->sign,    o->gpu,          o->verify_key, o->config};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i])
            allow_source(c, paths[i]);
    allow_parts_of(c, arena, o->model_name_or_path);
    allow_list(c, arena, o->dataset_path);
    allow_list(c, arena, o->eval_dataset_path);
}

/* --- directories that are to be written to must be there ----------------------------------------------------------------- */

/* Makes a directory, and notes it and those above it that were not there, the innermost first. One that cannot be made is the
 * command's to tell of. */
static enum status confine_make(json_t *made, struct arena *arena, const char *path)
{
    char *above = arena_text(arena, path, (int64_t)strlen(path)), *slash;
    json_t *missing = json_array();
    for (bool more = above && *above; more && !file_exists(above); more = slash && *above) {
        json_array_append_new(missing, json_string(above));
        slash = strrchr(above, '/');
        while (slash && slash > above && slash[-1] == '/')
            slash--;
        if (slash)
            *slash = 0;
    }
    if (directory_make(path) == OK)
        json_array_extend(made, missing);
    json_decref(missing);
    return above && !json_refused() ? OK : ERR_MEMORY;
}

static enum status make_all(json_t *made, struct arena *arena, const struct options *o, enum user_command command)
{
    const char *cache = cache_directory(arena, o->cache_dir), *output = o->dry_run ? NULL : o->output_dir;
    int kept = keeps[command];
    if (output && command == COMMAND_TRAIN && !file_exists(output)) {
        TRY(path_hint_output(output));
        TRY(checkpoint_dir_check_above(arena, output));
    }
    if (output && kept & WRITES_BELOW)
        TRY(confine_make(made, arena, output));
    if (output && kept & MAKES_FOLDER)
        TRY(confine_make(made, arena, folder_of(arena, output)));
    return cache && kept & (TEMPORARY | HUB | NETWORK) ? confine_make(made, arena, cache) : OK;
}

static void allow_results(struct confine *c, struct arena *arena, const struct options *o, int kept)
{
    allow_next_to(c, arena, o->html);
    allow_next_to(c, arena, o->calibrate);
    if (o->dry_run && o->output_dir)
        allow_source(c, o->output_dir);
    else if (o->output_dir && kept & WRITES_BELOW)
        confine_allow(c, o->output_dir, CONFINE_WRITE);
    else if (kept & WRITES_NEXT_TO && (o->output_dir || !(kept & WRITES_RUN)))
        allow_next_to(c, arena, o->output_dir ? o->output_dir : "run.yaml");
    else if (kept & WRITES_RUN && o->run_dir)
        confine_allow(c, o->run_dir, CONFINE_WRITE);
    if (o->output_dir && kept & WRITES_BELOW)
        confine_allow_links(c, o->output_dir);
}

/* --- places of the machine -------------------------------------------------------------------------------------------------- */

static void allow_all(struct confine *c, const char *const *paths, enum confine_right right)
{
    for (; *paths; paths++)
        confine_allow(c, *paths, right);
}

static void allow_variables(struct confine *c, const char *const *names)
{
    for (; *names; names++)
        confine_allow(c, getenv(*names), CONFINE_READ);
}

static void allow_parts(struct confine *c, struct arena *arena, const char *list)
{
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ":;");
        char *part = arena_text(arena, at, (int64_t)n);
        confine_allow(c, part, CONFINE_READ);
        at += n + (at[n] != 0);
    }
}

/* pip's packages have NVIDIA's libraries: cuda_api.c looks for them there. */
static void allow_pythons(struct confine *c, struct arena *arena)
{
    const char *python, *home = getenv("HOME");
    if (code_find_program(arena, "python3", &python) == OK)
        confine_allow(c, file_join(arena, folder_of(arena, python), "../lib"), CONFINE_READ);
    if (home && *home)
        confine_allow(c, file_join(arena, home, ".local/lib"), CONFINE_READ);
}

/* hone's own folder has its plug-ins, and those of HONE_..._LIBRARY what the named ones need. */
static void allow_libraries(struct confine *c, struct arena *arena)
{
    confine_allow(c, folder_of(arena, code_own_file()), CONFINE_READ);
    for (int i = 0; code_library(i); i++)
        confine_allow(c, folder_of(arena, code_library(i)), CONFINE_READ);
    allow_variables(c, library_folders);
    allow_pythons(c, arena);
    confine_allow(c, installed_directory(arena), CONFINE_READ);
    allow_parts(c, arena, getenv("LD_LIBRARY_PATH"));
}

/* A folder of a library's own, which it may have to make: what a variable names, or one in the user's cache. */
static void allow_own_cache(struct confine *c, struct arena *arena, const char *variable, const char *in_cache,
                            const char *in_home)
{
    const char *own = getenv(variable), *caches = in_cache ? getenv("XDG_CACHE_HOME") : NULL, *home = getenv("HOME");
    const char *path = own && *own         ? own
                       : caches && *caches ? file_join(arena, caches, in_cache)
                       : home && *home     ? file_join(arena, home, in_home)
                                           : NULL;
    if (path && (file_is_directory(path) || directory_make(path) == OK))
        confine_allow(c, path, CONFINE_WRITE);
}

static void allow_card(struct confine *c, struct arena *arena)
{
    allow_all(c, card_devices, CONFINE_DEVICE);
    for (int i = 0; i < CARDS_MAX; i++)
        confine_allow(c, arena_format(arena, "/dev/nvidia%d", i), CONFINE_DEVICE);
    allow_own_cache(c, arena, "CUDA_CACHE_PATH", NULL, ".nv/ComputeCache");
    confine_allow(c, "/dev/shm", CONFINE_WRITE);
    confine_allow(c, "/var/run/nvidia-persistenced", CONFINE_READ);
    confine_allow(c, "/tmp/nvidia-mps", CONFINE_WRITE);
    confine_allow(c, getenv("CUDA_MPS_PIPE_DIRECTORY"), CONFINE_WRITE);
    c->sockets = CONFINE_LOCAL; /* to the driver's own services */
}

/* PoCL makes code by the system's linker. */
static void allow_linker(struct confine *c, struct arena *arena)
{
    static const char *const loaders[] = {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", NULL};
    const char *linker;
    c->programs = c->memory = true;
    if (code_find_program(arena, "ld", &linker) == OK)
        confine_allow(c, linker, CONFINE_RUN);
    allow_all(c, loaders, CONFINE_RUN);
    allow_own_cache(c, arena, "POCL_CACHE_DIR", "pocl", ".cache/pocl");
    allow_all(c, card_devices, CONFINE_DEVICE);
}

/* A driver may have to make the card's device files, by a program of root's: so it is started before. */
static enum status allow_device(struct confine *c, struct arena *arena, const char *device)
{
    int cards = 0;
    if (!strcmp(device, "cpu"))
        return OK;
    if (!strncmp(device, "opencl", strlen("opencl"))) {
        allow_linker(c, arena);
        return OK;
    }
    enum status status = cuda_load_driver(&cards);
    c->memory = cards > 0;
    if (status == OK && cards)
        allow_card(c, arena);
    allow_all(c, card_devices, CONFINE_DEVICE); /* an OpenCL GPU */
    return status == ERR_MEMORY ? status : OK;  /* what else is wrong is said when the device is opened */
}

static void allow_hub(struct confine *c, struct arena *arena, const struct options *o, bool pulls)
{
    const char *home, *cache;
    if (hub_home(arena, &home) != OK || hub_cache(arena, &cache) != OK)
        return;
    if (pulls && !o->dry_run && directory_make(cache) == OK)
        confine_allow(c, cache, CONFINE_WRITE);
    confine_allow(c, pulls ? home : cache, CONFINE_READ);
    allow_named(c, arena, o->model_name_or_path, pulls ? CONFINE_WRITE : CONFINE_READ);
    allow_named(c, arena, o->adapter, CONFINE_READ);
    allow_named(c, arena, o->init_adapter, CONFINE_READ);
}

static void allow_network(struct confine *c)
{
    c->sockets = CONFINE_CLIENT;
    allow_all(c, network_places, CONFINE_READ);
    allow_variables(c, certificates);
    confine_allow(c, getenv("HF_TOKEN_PATH"), CONFINE_READ);
}

/* --- the process ------------------------------------------------------------------------------------------------------------ */

/* Ranks of one machine read each other's memory, and their launchers' libraries differ too much to name their files. */
static enum status confine(const struct options *values, enum user_command command, bool alone, struct arena *arena,
                           void (*refused)(const char *call))
{
    int kept = keeps[command];
    struct confine c;
    confine_begin(&c, alone);
    confine_allow(&c, "/", kept & READS_ALL || names_base(values) ? CONFINE_READ : CONFINE_LIST);
    if (kept & WRITES_HERE)
        confine_allow(&c, ".", CONFINE_WRITE);
    allow_all(&c, system_places, CONFINE_READ);
    allow_all(&c, system_devices, CONFINE_DEVICE);
    allow_libraries(&c, arena);
    confine_allow(&c, cache_directory(arena, values->cache_dir), CONFINE_WRITE);
    if (kept & TEMPORARY)
        confine_allow(&c, directory_for_temporary(), CONFINE_WRITE);
    allow_sources(&c, arena, values);
    allow_results(&c, arena, values, kept);
    enum status status = kept & COMPUTES ? allow_device(&c, arena, values->device) : OK;
    if (kept & (HUB | NETWORK))
        allow_hub(&c, arena, values, kept & NETWORK);
    if (kept & NETWORK)
        allow_network(&c);
    c.peers = !alone;
    c.memory = c.memory || !alone;
    c.sockets = alone ? c.sockets : CONFINE_ALL_SOCKETS;
    if (confine_end(&c, refused) != OK) /* as where sandboxes are nested too deeply: the command is as safe as it was without */
        log_message(LOG_WARNING, "%s: not everything is kept back from this process (docs/confinement.md)", status_message());
    return status;
}

enum status command_confine(const struct options *options, enum user_command command, bool alone,
                            void (*refused)(const char *call), json_t **report)
{
    struct arena arena = {0};
    json_t *tree = json_object(), *made = json_array();
    json_object_set_new(tree, "made", made);
    enum status status = alone ? make_all(made, &arena, options, command) : OK;
    if (confine_lacks())
        log_message(LOG_INFO, "not kept back from this process: %s (docs/confinement.md)", confine_lacks());
    if (status == OK)
        status = confine(options, command, alone, &arena, refused);
    arena_free(&arena);
    if (status == OK)
        *report = tree;
    else
        json_decref(tree);
    return status;
}
