/* Taking a place, and leaving it. */
#include "state/run_place.h"

#include "base/clock.h"
#include "models/model_copy.h"
#include "state/checkpoint.h"
#include "state/ranks_agree.h"

/* Of a run that is resumed on another day, the rows are those of its first one. */
static enum status look_back(struct run_place *p)
{
    TRY(checkpoint_recover(&p->output));
    return checkpoint_find_moment(p->job->options, &p->moment);
}

static enum status take_output(struct run_place *p)
{
    const struct options *o = p->job->options;
    if (!o->output_dir)
        return OK;
    return o->dry_run ? output_look(o->output_dir, &p->arena) : output_take(&p->output, o->output_dir, &p->arena);
}

static enum status run_place_take(struct run_place *p)
{
    const struct options *o = p->job->options;
    bool first = group_rank(p->group) == 0;
    TRY(ranks_agree_options(p->group, o));
    if (o->sign && first)
        TRY(minisign_key_open(&p->signer, o->sign));
    if (first)
        TRY(take_output(p));
    if (p->job->full)
        TRY(model_copy_digest(o->model_name_or_path, &p->siblings));
    TRY(group_agree(p->group, first ? look_back(p) : OK));
    return group_tell(p->group, &p->moment, (int64_t)sizeof p->moment);
}

enum status run_place_open(struct run_place *p, const struct job *job, struct group *group)
{
    *p = (struct run_place){.job = job, .group = group, .moment = clock_moment()};
    enum status status = run_place_take(p);
    if (status != OK)
        run_place_close(p);
    return status;
}

void run_place_close(struct run_place *p)
{
    minisign_key_close(p->signer);
    output_release(&p->output);
    arena_free(&p->arena);
    *p = (struct run_place){0};
}
