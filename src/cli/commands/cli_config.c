/* hone config convert: a configuration, of hone or of another tool, as hone's own YAML. */
#include "cli/cli.h"

#include "base/name.h"
#include "cli/view/out.h"
#include "config/options.h"

/* The YAML goes to standard output: --output is where the run's result goes. */
static hone_status config_check_output(hone_options *options, const char *file)
{
    const char *output;
    hone_status status = hone_options_get(options, "output_dir", &output);
    if (status == HONE_OK && (name_ends_with(output, ".yaml") || name_ends_with(output, ".yml")))
        return (hone_status)fail(
            ERR_ARGUMENT,
            "--output %.100s would be where the run's result goes: to write the YAML there, write hone config "
            "convert %.100s > %.100s",
            output, file, output);
    return status;
}

hone_status cli_config_convert(hone_options *options)
{
    const char *file;
    char *yaml = NULL; /* or JSON */
    hone_status status = hone_options_get(options, "config", &file);
    if (status == HONE_OK && !*file)
        status = (hone_status)fail(ERR_ARGUMENT, "hone config convert needs a FILE: a YAML configuration");
    if (status == HONE_OK)
        status = config_check_output(options, file);
    bool json = cli_flag(options, "json");
    if (status == HONE_OK)
        status = json ? hone_options_json(options, &yaml) : hone_options_write(options, &yaml);
    if (status == HONE_OK)
        json ? out_json(yaml) : out_text(stdout, yaml);
    hone_text_destroy(yaml);
    return status;
}
