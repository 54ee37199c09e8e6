// A C program on a CUDA device, through libtessera_c.so's module. It touches no device memory, so
// it also runs on the emulated module.
#include <stdio.h>

#include "tessera/c.h"
#include "tessera/dlpack.h"

static tessera_status train(tessera_world* world, void* user) {
  (void)user;
  int32_t rank;
  void* stream;
  TESSERA_TRY(tessera_world_place(world, &rank, NULL));
  TESSERA_TRY(tessera_world_stream(world, &stream));
  if (stream == NULL) return tessera_fail(TESSERA_ERROR, "a CUDA rank has no stream");
  tessera_model_options options;
  TESSERA_TRY(tessera_model_options_init(&options, sizeof options));
  options.strategy = TESSERA_ZERO3;
  options.compute = TESSERA_BF16;
  tessera_model* model;
  TESSERA_TRY(tessera_model_create(world, &options, &model));
  tessera_unit units[2];
  const char* const names[] = {"first", "second"};
  for (int u = 0; u < 2; ++u) {
    const tessera_parameter_spec spec = {.name = "w", .dims = 2, .shape = {30, 40}};
    TESSERA_TRY(tessera_add_unit(model, names[u], &spec, 1, NULL, &units[u]));
  }
  TESSERA_TRY(tessera_materialize_normal(model, 1, 0.1F));
  tessera_optimizer_options adamw;
  TESSERA_TRY(tessera_optimizer_options_init(&adamw, sizeof adamw, TESSERA_ADAMW));
  TESSERA_TRY(tessera_optimize_with(model, &adamw));
  for (int step = 0; step < 2; ++step) {
    tessera_scope* scope;
    for (int u = 0; u < 2; ++u) {
      TESSERA_TRY(tessera_forward(model, units[u], &scope));
      struct DLManagedTensor* view;
      TESSERA_TRY(tessera_parameter_dlpack(scope, "w", &view));
      const int on_cuda = view->dl_tensor.device.device_type == kDLCUDA;
      view->deleter(view);
      if (!on_cuda) return tessera_fail(TESSERA_ERROR, "the view is not on CUDA");
      TESSERA_TRY(tessera_close(scope));
    }
    for (int u = 1; u >= 0; --u) {
      TESSERA_TRY(tessera_backward(model, units[u], &scope));
      TESSERA_TRY(tessera_close(scope));
    }
    TESSERA_TRY(tessera_step(model, NULL));
  }
  tessera_step_report report = {.size = sizeof report};
  TESSERA_TRY(tessera_report(model, &report));
  if (rank == 0) printf("%d steps, norm %g\n", (int)report.step, report.grad_norm);
  return TESSERA_OK;
}

int main(void) {
  tessera_world_options options;
  tessera_status status = tessera_world_options_init(&options, sizeof options);
  options.device = TESSERA_CUDA;
  if (status == TESSERA_OK) status = tessera_run_ranks(2, train, NULL, &options);
  if (status != TESSERA_OK) fprintf(stderr, "%s\n", tessera_last_error());
  return status != TESSERA_OK;
}
