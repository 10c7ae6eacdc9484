/* Each choice of the options has its own enum; tables map it to the engine's. */
#include "job/settings.h"

#include "dist/diloco_pack.h"

static const int runs[] = {[CHOICE_dtype_float32] = RUN_FLOAT32,
                           [CHOICE_dtype_bfloat16] = RUN_BFLOAT16,
                           [CHOICE_dtype_float16] = RUN_FLOAT16,
                           [CHOICE_dtype_auto] = RUN_AUTO};

static const enum device_code codes[] = {[CHOICE_cuda_code_auto] = DEVICE_CODE_AUTO,
                                         [CHOICE_cuda_code_cubin] = DEVICE_CODE_CUBIN,
                                         [CHOICE_cuda_code_ptx] = DEVICE_CODE_PTX};

static const enum device_graph graphs[] = {[CHOICE_cuda_graph_auto] = DEVICE_GRAPH_AUTO,
                                           [CHOICE_cuda_graph_on] = DEVICE_GRAPH_ON,
                                           [CHOICE_cuda_graph_off] = DEVICE_GRAPH_OFF};

bool settings_quantised(const struct options *o)
{
    return o->load_in_4bit || o->finetuning_type == CHOICE_finetuning_type_qlora;
}

struct session_options settings_session(const struct options *o, const char *adapter, bool weights)
{
    return (struct session_options){.dir = o->model_name_or_path,
                                    .device = o->device,
                                    .run = runs[o->dtype],
                                    .adapter = adapter,
                                    .hub_name = o->hub_name,
                                    .any_base = o->any_base,
                                    .weights = weights,
                                    .load_in_4bit = settings_quantised(o),
                                    .double_quant = o->bnb_4bit_use_double_quant,
                                    .load_in_fp8 = o->load_in_fp8,
                                    .resident_layers = o->resident_layers,
                                    .offload_activations = o->activation_offloading == CHOICE_activation_offloading_on,
                                    .tf32 = o->tf32,
                                    .on_device = {codes[o->cuda_code], graphs[o->cuda_graph]}};
}

int64_t settings_diloco_bytes(const struct options *o, int ranks, int64_t elements)
{
    if (ranks < 2 || o->sync_every <= 1)
        return 0;
    int64_t arrays = o->sync_int8 ? 4 : 3;
    return arrays * elements * (int64_t)sizeof(float) + (o->sync_int8 ? ranks * diloco_pack_bytes(elements) : 0);
}

enum status settings_check_length(const struct options *o, int64_t window)
{
    if (o->max_length > window)
        return fail(
            ERR_ARGUMENT,
            "--max-length %lld is above the model's window of %lld tokens: lower it; --excess-length says what becomes of "
            "longer chats",
            (long long)o->max_length, (long long)window);
    return OK;
}
