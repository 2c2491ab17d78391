/* Runs a compiled model on inputs filled with ones: run_model model.so f32:1,3,224,224
 *
 * Build: cc -O2 -Iinclude examples/c/run_model.c -o run_model        (with -ldl on glibc older than 2.34)
 *
 * Shapes of a model are in its manifest (JSON); to keep JSON out of this page they are given on the command line, one
 * argument an input: "f32:1,3,224,224"; "i64:" is a scalar.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tripod/model.h"

/* Outputs are made by the model, which knows their shapes; the memory is ours. */
static void* allocate(void* user, int32_t output, size_t bytes, tripod_dtype dtype, int32_t rank, const int64_t* shape) {
  (void)user, (void)output, (void)dtype, (void)rank, (void)shape;
  return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

static int parse_input(const char* text, tripod_value* value, int64_t* shape) {
  int64_t count = 1;
  int f32 = strncmp(text, "f32:", 4) == 0;
  if (!f32 && strncmp(text, "i64:", 4) != 0) return 0;
  memset(value, 0, sizeof *value);
  value->tensor.dtype = f32 ? TRIPOD_F32 : TRIPOD_I64;
  value->tensor.shape = shape;
  for (const char* p = text + 4; *p && value->tensor.rank < TRIPOD_MAX_RANK; p += *p == ',') {
    char* end;
    count *= shape[value->tensor.rank++] = strtoll(p, &end, 10);
    if (end == p) return 0;
    p = end;
  }
  value->tensor.data = malloc((size_t)count * 8 + 8);
  for (int64_t i = 0; i < count; ++i)
    if (f32) ((float*)value->tensor.data)[i] = 1.0f;
    else ((int64_t*)value->tensor.data)[i] = 1;
  return 1;
}

int main(int argc, char** argv) {
  const char* error = NULL;
  const tripod_api* model = argc > 1 ? tripod_open(argv[1], &error) : NULL;
  if (!model) return fprintf(stderr, "usage: run_model model.so [f32:DIMS|i64:DIMS]...\n%s\n", error ? error : ""), 2;
  printf("%s\n", model->describe());

  int32_t inputs = argc - 2, outputs = model->num_outputs();
  tripod_value* in = calloc((size_t)inputs + 1, sizeof *in);
  tripod_value* out = calloc((size_t)outputs + 1, sizeof *out); /* data NULL: the allocator is asked */
  int64_t(*shapes)[TRIPOD_MAX_RANK] = calloc((size_t)inputs + 1, sizeof *shapes);
  for (int32_t i = 0; i < inputs; ++i)
    if (!parse_input(argv[i + 2], &in[i], shapes[i])) return fprintf(stderr, "bad input %s\n", argv[i + 2]), 2;

  tripod_context_options options = {TRIPOD_API_VERSION, TRIPOD_CPU, 0, NULL, allocate, NULL};
  tripod_context* context = NULL;
  if (model->create_context(&options, &context) || model->run(context, in, inputs, out, outputs))
    return fprintf(stderr, "%s\n", model->last_error()), 1;

  for (int32_t i = 0; i < outputs; ++i) {
    const tripod_tensor* t = &out[i].tensor;
    printf("output %d: [", i);
    for (int32_t a = 0; a < t->rank; ++a) printf("%s%lld", a ? ", " : "", (long long)t->shape[a]);
    printf("]");
    if (t->dtype == TRIPOD_F32 && t->data) printf(" first element %g", (double)*(const float*)t->data);
    printf("\n");
    free(t->data);
  }
  model->destroy_context(context);
  return 0;
}
