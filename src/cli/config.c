/* hone config convert: a configuration, of hone or of another tool, as hone's own YAML. */
#include "cli/cli.h"

#include "config/options.h"

hone_status cli_config_convert(hone_options *options)
{
    const char *file;
    char *yaml = NULL;
    hone_status status = hone_options_get(options, "config", &file);
    if (status == HONE_OK && !*file)
        status = (hone_status)fail(ERR_ARGUMENT, "hone config convert needs a FILE: a YAML configuration");
    if (status == HONE_OK)
        status = hone_options_write(options, &yaml);
    if (status == HONE_OK)
        fputs(yaml, stdout);
    hone_text_destroy(yaml);
    return status;
}
