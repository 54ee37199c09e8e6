#include <string>
#include <utility>
#include <vector>

#include "c/callbacks.hpp"
#include "c/objects.hpp"
#include "c/options.hpp"
#include "c/structs.hpp"
#include "tessera/engine/init.hpp"

namespace tessera::c {
namespace {

tessera_unit_options unit_defaults() {
  tessera_unit_options to = {};
  to.size = sizeof to;
  to.reshard = -1;
  return to;
}

UnitOptions unit_options(Call call, const tessera_unit_options* given) {
  const tessera_unit_options from = given_or(call, "tessera_unit_options", given, unit_defaults());
  require_zero(call, "tessera_unit_options", from.reserved);
  UnitOptions to;
  if (flag(call, "root", from.root)) { to.kind = UnitKind::root; }
  if (flag(call, "gradients_unzeroed", from.gradients_unzeroed)) {
    to.gradients = GradientInit::unzeroed;
  }
  if (from.reshard != -1) {
    to.reshard = enumerator(call, "reshard", from.reshard, Reshard::after_backward);
  }
  return to;
}

ParameterSpec parameter_spec(Call call, const tessera_parameter_spec& from) {
  call.require(from.name, "the name of a parameter");
  require_zero(call, "a tessera_parameter_spec", from.reserved);
  require_zero(call, "a tessera_parameter_spec", from.reserved_flag);
  if (from.dims < 0 || from.dims > TESSERA_MOST_DIMS) {
    call.refuse(fmt::format("parameter '{}' has {} dims, but may have 0 to {}", from.name,
                            from.dims, TESSERA_MOST_DIMS));
  }
  ParameterSpec to{.name = from.name,
                   .shape = Shape{std::vector<std::int64_t>(from.shape, from.shape + from.dims)},
                   .trainable = !flag(call, "frozen", from.frozen),
                   .room = from.room};
  if (from.dtype != TESSERA_DTYPE_DEFAULT) { to.dtype = dtype_of(call, "dtype", from.dtype); }
  if (from.tied_unit != nullptr || from.tied_parameter != nullptr) {
    call.require(from.tied_unit, "tied_unit");
    call.require(from.tied_parameter, "tied_parameter");
    to.tied_to = TiedTo{.unit = from.tied_unit, .parameter = from.tied_parameter};
  }
  return to;
}

void materialize(Call call, tessera_model* model, const Initializer& initial) {
  find<OpenModel>(call, model)->sharded().materialize(initial);
}

}  // namespace
}  // namespace tessera::c

using namespace tessera::c;
using tessera::ParameterInfo;

tessera_status tessera_model_create(tessera_world* world, const tessera_model_options* options,
                                    tessera_model** model) {
  return guarded(__func__, [&](Call call) {
    const auto rank = find<Rank>(call, world);
    call.require(model, "model");
    *model = rank->add_model(model_options(call, options));
  });
}

tessera_status tessera_model_destroy(tessera_model* model) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    found->require_nothing_open(call);
    found->rank().remove_model(model);
  });
}

tessera_status tessera_unit_options_init(tessera_unit_options* options, size_t size) {
  return guarded(__func__, [&](Call call) {
    write_sized(call, "tessera_unit_options", options, size, unit_defaults());
  });
}

tessera_status tessera_add_unit(tessera_model* model, const char* name,
                                const tessera_parameter_spec* parameters, size_t count,
                                const tessera_unit_options* options, tessera_unit* unit) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require(name, "name");
    call.require(unit, "unit");
    call.require_array(parameters, "parameters", count);
    std::vector<tessera::ParameterSpec> specs;
    for (std::size_t i = 0; i < count; ++i) {
      specs.push_back(parameter_spec(call, parameters[i]));
    }
    *unit = found->number_of(
        found->sharded().add_unit(name, std::move(specs), unit_options(call, options)));
  });
}

tessera_status tessera_declare_order(tessera_model* model, const tessera_unit* units,
                                     size_t count) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    call.require_array(units, "units", count);
    std::vector<tessera::Unit> order;
    for (std::size_t i = 0; i < count; ++i) { order.push_back(found->unit_of(call, units[i])); }
    found->sharded().declare_order(order);
  });
}

tessera_status tessera_materialize(tessera_model* model, tessera_initializer_fn initial,
                                   void* user) {
  return guarded(__func__, [&](Call call) {
    call.require(initial, "the initialiser");
    materialize(call, model, [&](const ParameterInfo& parameter, std::int64_t first, auto out) {
      rethrow_from_callback(initial(&CParameterInfo{parameter}.info(), first,
                                    static_cast<std::int64_t>(out.size()), out.data(), user),
                            "the initialiser");
    });
  });
}

tessera_status tessera_materialize_normal(tessera_model* model, uint64_t seed, float stddev) {
  return guarded(__func__,
                 [&](Call call) { materialize(call, model, tessera::init::normal(seed, stddev)); });
}

tessera_status tessera_materialize_constant(tessera_model* model, float value) {
  return guarded(__func__,
                 [&](Call call) { materialize(call, model, tessera::init::constant(value)); });
}

tessera_status tessera_materialize_from(tessera_model* model, const char* path,
                                        tessera_name_fn name, void* user) {
  return guarded(__func__, [&](Call call) {
    call.require(path, "path");
    materialize(call, model, tessera::weights_from(path, weight_name(call, name, user)));
  });
}

tessera_status tessera_fill_normal(uint64_t seed, uint32_t id, int64_t first, int64_t count,
                                   float stddev, float* out) {
  return guarded(__func__, [&](Call call) {
    if (count < 0 || first < 0) { call.refuse("`first` and `count` must be 0 or more"); }
    if (first > INT64_MAX - count) {
      call.refuse(
          fmt::format("there is no element {} + {}: check `first` and `count`", first, count));
    }
    call.require_array(out, "out", static_cast<std::uint64_t>(count));
    tessera::init::fill_normal(seed, id, first, stddev, {out, static_cast<std::size_t>(count)});
  });
}

tessera_status tessera_optimize_with(tessera_model* model,
                                     const tessera_optimizer_options* options) {
  return guarded(__func__, [&](Call call) {
    const auto found = find<OpenModel>(call, model);
    const OptimizerChoice choice = optimizer_choice(call, options);
    found->sharded().optimize_with(choice.rule, choice.options);
  });
}
