#include <cmath>

#include "c/objects.hpp"
#include "c/parameter_info.hpp"
#include "c/structs.hpp"

namespace tessera::c {
namespace {

void write_report(Call call, const StepReport& from, tessera_step_report* report) {
  tessera_step_report to = {};
  to.step = from.step;
  to.loss = from.loss;
  to.grad_norm = from.grad_norm;
  to.clip_coefficient = from.clip_coefficient;
  to.lr = from.lr;
  to.loss_scale = from.loss_scale;
  to.next_loss_scale = from.next_loss_scale;
  to.skipped_in_a_row = from.skipped_in_a_row;
  to.skipped = from.skipped ? 1 : 0;
  write_sized(call, "tessera_step_report", report, report->size, to);
}

StateTensor state_of(Call call, tessera_category what) {
  switch (what) {
    case TESSERA_PARAMETERS:
      return StateTensor::parameters;
    case TESSERA_GRADIENTS:
      return StateTensor::gradients;
    default:
      call.refuse("`what` must be TESSERA_PARAMETERS or TESSERA_GRADIENTS");
  }
}

}  // namespace
}  // namespace tessera::c

using namespace tessera::c;

tessera_status tessera_step(tessera_model* model, const double* loss) {
  return guarded(__func__, [&](Call call) { find<OpenModel>(call, model)->sharded().step(loss); });
}

tessera_status tessera_step_counted(tessera_model* model, const double* loss, const double* counted,
                                    double of) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    if (!(of > 0.0) || !std::isfinite(of)) {
      call.refuse("`of` is the number of all tokens, above 0 and finite");
    }
    found->sharded().step(loss, {counted, of});
  });
}

tessera_status tessera_loss_scale(tessera_model* model, const float** scale) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(scale, "scale");
    *scale = found->sharded().loss_scale();
  });
}

tessera_status tessera_set_learning_rate(tessera_model* model, float lr) {
  return guarded(__func__,
                 [&](Call call) { find<OpenModel>(call, model)->sharded().set_learning_rate(lr); });
}

tessera_status tessera_freeze(tessera_model* model, tessera_unit unit, const char* name) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(name, "name");
    found->sharded().freeze(found->unit_of(call, unit), name);
  });
}

tessera_status tessera_unfreeze(tessera_model* model, tessera_unit unit, const char* name) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(name, "name");
    found->sharded().unfreeze(found->unit_of(call, unit), name);
  });
}

tessera_status tessera_report(tessera_model* model, tessera_step_report* report) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(report, "report");
    write_report(call, found->sharded().report(), report);
  });
}

tessera_status tessera_previous_report(tessera_model* model, tessera_step_report* report) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(report, "report");
    write_report(call, found->sharded().previous_report(), report);
  });
}

tessera_status tessera_steps(tessera_model* model, int64_t* steps) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(steps, "steps");
    *steps = found->sharded().steps();
  });
}

tessera_status tessera_export_state(tessera_model* model, tessera_category what,
                                    tessera_sink_fn sink, void* user) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(sink, "sink");
    found->sharded().export_state(
        state_of(call, what), [&](const tessera::ParameterInfo& parameter, auto values) {
          rethrow_from_callback(sink(&CParameterInfo{parameter}.info(), values.data(),
                                     static_cast<std::int64_t>(values.size()), user),
                                "the sink");
        });
  });
}
