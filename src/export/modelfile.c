/* Ollama writes prompts by templates of its own; those of the common formats are known here by a marker in the chat template,
 * which must have the token that ends a message too: other models have the same marker with another end. */
#include "export/modelfile.h"

#include <string.h>

#include "base/file.h"
#include "export/gguf_vocabulary.h"

static const struct {
    const char *marker, *template, *stop;
} FORMATS[] = {
    {"<|im_sep|>", /* Phi 4 */
     "{{- range .Messages }}<|im_start|>{{ .Role }}<|im_sep|>{{ .Content }}<|im_end|>{{ end }}<|im_start|>assistant<|im_sep|>",
     "<|im_end|>"},
    {"<|im_start|>", "{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}<|im_start|>assistant\n",
     "<|im_end|>"},
    {"<|start_header_id|>",
     "{{- range .Messages }}<|start_header_id|>{{ .Role }}<|end_header_id|>\n\n{{ .Content }}<|eot_id|>{{ end }}"
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     "<|eot_id|>"},
    {"<start_of_turn>",
     "{{- range .Messages }}<start_of_turn>{{ if eq .Role \"assistant\" }}model{{ else }}user{{ end }}\n"
     "{{ .Content }}<end_of_turn>\n{{ end }}<start_of_turn>model\n",
     "<end_of_turn>"},
    {"[INST]",
     "{{- range .Messages }}{{ if eq .Role \"assistant\" }} {{ .Content }}</s>{{ else }}[INST] {{ .Content }} [/INST]"
     "{{ end }}{{ end }}",
     "[INST]"},
    {"<|assistant|>", "{{- range .Messages }}<|{{ .Role }}|>\n{{ .Content }}<|end|>\n{{ end }}<|assistant|>\n", "<|end|>"},
};

static enum status compose(struct buffer *out, const char *gguf, const char *template)
{
    TRY(buffer_format(out, "FROM ./%s\n", gguf));
    for (size_t i = 0; template && i < sizeof FORMATS / sizeof *FORMATS; i++)
        if (strstr(template, FORMATS[i].marker) && strstr(template, FORMATS[i].stop))
            return buffer_format(out, "TEMPLATE \"\"\"%s\"\"\"\nPARAMETER stop \"%s\"\n", FORMATS[i].template, FORMATS[i].stop);
    return OK; /* Ollama then looks at the file's own template */
}

enum status modelfile_write(const char *path, const char *gguf, const char *dir)
{
    struct buffer template = {0}, out = {0};
    enum status status = read_template(dir, &template);
    if (status == OK)
        status = compose(&out, gguf, template.data);
    if (status == OK)
        status = file_replace(path, out.data, out.size);
    buffer_free(&template);
    buffer_free(&out);
    return status;
}
