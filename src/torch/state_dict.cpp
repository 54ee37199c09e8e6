// What a sharded module exports and loads under the module's own names.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/torch/shard.hpp"
#include "torch/found_in_files.hpp"
#include "torch/initial_values.hpp"
#include "torch/meeting.hpp"
#include "torch/work.hpp"

namespace tessera::torch {

namespace {

using StateDict = std::map<std::string, at::Tensor>;

at::Tensor tensor_of(const Shape& shape, std::span<const float> values) {
  const at::Tensor tensor = at::empty(at::IntArrayRef{shape.dims().data(), shape.dims().size()},
                                      at::TensorOptions{}.dtype(at::kFloat));
  std::memcpy(tensor.data_ptr<float>(), values.data(), values.size_bytes());
  return tensor;
}

StateDict exported(ShardedModule::Work& work, StateTensor what, bool keeps) {
  std::map<std::string, const std::vector<std::string>*> names;
  for (const ModuleUnit& unit : work.units) {
    for (const ModuleParameter& parameter : unit.parameters) {
      names.emplace(parameter.names.front(), &parameter.names);
    }
  }
  StateDict all;
  work.passes.close_everything();
  work.model.export_state(what, [&](const ParameterInfo& info, std::span<const float> values) {
    if (!keeps) { return; }
    const at::Tensor tensor = tensor_of(info.shape, values);
    for (const std::string& name : *names.at(ShardedModule::name_of(info))) {
      all.emplace(name, tensor);
    }
  });
  return all;
}

WeightName or_of_module(const WeightName& name) {
  return name ? name : WeightName{&ShardedModule::name_of};
}

}  // namespace

ModuleInitializer loaded_later() {
  return [](const std::string&, ::torch::nn::Module& module) {
    for (const at::Tensor& parameter : module.parameters(/*recurse=*/false)) {
      if (parameter.defined()) { parameter.zero_(); }
    }
  };
}

StateDict ShardedModule::state_dict(bool on_all_ranks) {
  const at::NoGradGuard no_grad;
  const bool keeps = on_all_ranks || work_->world.rank() == 0;
  StateDict all = exported(*work_, StateTensor::parameters, keeps);
  if (!keeps) { return all; }
  for (const ModuleBuffer& buffer : work_->buffers.all()) {
    const at::Tensor copy = buffer.tensor.detach().to(at::kCPU, /*non_blocking=*/false,
                                                      /*copy=*/true, at::MemoryFormat::Contiguous);
    for (const std::string& name : buffer.names) { all.emplace(name, copy); }
  }
  return all;
}

StateDict ShardedModule::export_gradients(bool on_all_ranks) {
  const at::NoGradGuard no_grad;
  work_->heed_zero_grad();
  return exported(*work_, StateTensor::gradients, on_all_ranks || work_->world.rank() == 0);
}

std::filesystem::path ShardedModule::save(const std::filesystem::path& folder,
                                          const std::map<std::string, std::string>& values,
                                          const SaveOptions& options) {
  SaveOptions under_names = options;
  under_names.name = or_of_module(options.name);
  work_->passes.close_everything();
  meet(work_->world, "save");
  return tessera::save(work_->model, folder, work_->buffers.extras(values), under_names);
}

LoadReport ShardedModule::load(const std::filesystem::path& path, const LoadOptions& options) {
  if (!options.allow_partial && options.what == LoadOptions::What::weights) {
    throw ContractError{
        "load: `allow_partial` false does not know the module's buffers; leave it at true, and "
        "look at `missing` and `unexpected` of the report"};
  }
  LoadOptions under_names = options;
  under_names.name = or_of_module(options.name);
  LoadReport report;
  work_->heed_zero_grad();
  work_->passes.close_everything();
  if (options.what == LoadOptions::What::everything) {
    report = tessera::load(work_->model, path, work_->buffers.extras({}), under_names);
    work_->buffers.loaded();
  } else {
    FoundInFiles found{work_->world, path, work_->units, work_->buffers, under_names};
    under_names.name = found.parameter_name();
    report = tessera::load(work_->model, path, {}, under_names);
    found.load_buffers(report);
  }
  work_->passes.parameters_changed();
  return report;
}

CheckpointExtras ShardedModule::checkpoint_extras(
    const std::map<std::string, std::string>& values) const {
  work_->passes.end_reading();
  return work_->buffers.extras(values);
}

}  // namespace tessera::torch
