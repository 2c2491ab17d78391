/* Runs a compiled model on inputs of ones: run_model model.so 1,3,224,224 ...   (the dims of each f32 input)
 * Build: cc -O2 -Iinclude examples/c/run_model.c -o run_model      (with -ldl on glibc older than 2.34) */
#include <stdio.h>
#include <stdlib.h>

#include "tripod/model.h"

/* Outputs come from here: the model knows their shapes, the memory is ours. */
static void* allocate(void* user, int32_t output, size_t bytes, tripod_dtype dtype, int32_t rank, const int64_t* shape) {
  (void)user, (void)output, (void)dtype, (void)rank, (void)shape;
  return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

int main(int argc, char** argv) {
  const char* error = "usage: run_model model.so DIMS...";
  const tripod_api* model = argc > 1 ? tripod_open(argv[1], &error) : NULL;
  if (!model) return fprintf(stderr, "%s\n", error), 2;
  static tripod_value in[64], out[64]; /* all zeros: dense f32 tensors on the CPU; outputs without memory */
  static int64_t shapes[64][TRIPOD_MAX_RANK];
  for (int i = 0; i < argc - 2 && i < 64; ++i) {
    size_t count = 1;
    tripod_tensor* t = &in[i].tensor;
    t->shape = shapes[i];
    for (char* p = argv[i + 2]; *p && t->rank < TRIPOD_MAX_RANK; p += *p == ',')
      count *= (size_t)(shapes[i][t->rank++] = strtoll(p, &p, 10));
    float* data = t->data = malloc(count * sizeof(float) + 1);
    while (count-- > 0) data[count] = 1.0f;
  }
  tripod_context_options options = {TRIPOD_API_VERSION, TRIPOD_CPU, 0, NULL, allocate, NULL, NULL, NULL, 0};
  tripod_context* context = NULL;
  if (model->create_context(&options, &context) || model->run(context, in, argc - 2, out, model->num_outputs()))
    return fprintf(stderr, "%s\n", model->last_error()), 1;
  for (int i = 0; i < model->num_outputs(); ++i) {
    printf("output %d: [", i);
    for (int a = 0; a < out[i].tensor.rank; ++a) printf(a ? ", %ld" : "%ld", (long)out[i].tensor.shape[a]);
    printf("]%s\n", out[i].tensor.dtype == TRIPOD_F32 ? "" : " (not f32)");
    free(out[i].tensor.data);
  }
  return model->destroy_context(context), 0;
}
