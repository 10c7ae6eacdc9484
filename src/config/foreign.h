/* Configurations of other tools: Axolotl's, LLaMA-Factory's, TRL's and MLX-LM's YAML as hone's options, by the table foreign.def.
 *
 * The idea: the run is the one that the other tool would have made. So a key means what it means there, the tool's own defaults
 * hold where a key is absent, and what hone cannot do is an error that names every such key at once. What cannot change the
 * trained model is accepted and listed.
 */
#ifndef CONFIG_FOREIGN_H
#define CONFIG_FOREIGN_H

#include "config/options.h"
#include "config/yaml_tree.h"

/* Whose configuration this is: the tool to which most of the keys belong that are not hone's. There must be two of them, or one
 * beside the tool's words for model and data. hone's is a file that has other words for model, data or output, and NULL. */
enum choice_config_format foreign_format(const struct yaml_node *root);

/* Sets the options that were not set before. options->notes then says what was not needed and what was changed. */
enum status foreign_load(struct options *options, enum user_command command, enum choice_config_format format,
                         const struct yaml_node *root, const char *path);

/* Whose key this is, for messages: "TRL", or NULL. Of several tools, the first. */
const char *foreign_owner(const char *key, enum choice_config_format *format);

/* Appends docs/configs.md. */
enum status foreign_markdown(struct buffer *text);

#endif
