/* TensorBoard's event files, written by hand: a file is a list of records, and a record is one message.
 *
 *     record      length (8 bytes), masked CRC-32C of these, the message, masked CRC-32C of it; all little-endian
 *     Event       double wall_time = 1; int64 step = 2; and one of
 *                 string file_version = 3; Summary summary = 5; SessionLog session_log = 7
 *     Summary     repeated Value value = 1
 *     Value       string tag = 1; float simple_value = 2, or TensorProto tensor = 8 with SummaryMetadata metadata = 9
 *     SessionLog  SessionStatus status = 1 (START is 1)
 *
 * as in event.proto and summary.proto of TensorBoard. A reader stops at a record that is not whole, so a file may end anywhere.
 * Every function appends one record to a buffer; if it has room for it nothing is allocated.
 */
#ifndef FORMAT_TFEVENTS_H
#define FORMAT_TFEVENTS_H

#include "base/memory.h"

struct tfevents_scalar {
    const char *tag; /* "train/loss" */
    float value;
};

/* Where and when. */
struct tfevents_place {
    double wall_time; /* seconds since 1970 */
    int64_t step;
};

/* The first record of a file. */
enum status tfevents_version(struct buffer *file, double wall_time);

/* A run goes on at this step: readers forget what earlier files have of it and of later ones. */
enum status tfevents_start(struct buffer *file, struct tfevents_place place);

enum status tfevents_scalars(struct buffer *file, struct tfevents_place place, const struct tfevents_scalar *list, int count);

/* A text, which TensorBoard shows as Markdown. */
enum status tfevents_text(struct buffer *file, struct tfevents_place place, const char *tag, const char *text, int64_t length);

#endif
