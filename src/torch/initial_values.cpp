#include "torch/initial_values.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/comm/batch.hpp"
#include "torch/layer_defaults.hpp"
#include "torch/made_values.hpp"
#include "torch/meta_tensors.hpp"

namespace tessera::torch {

at::Device device_of(World& world) {
  if (world.options().device == DeviceKind::cpu || world.simulated()) { return at::kCPU; }
  const std::string name = world.device().name();
  return at::Device{name};
}

void require_same_lines(World& world, const std::string& text) {
  if (world.size() == 1) { return; }
  const std::vector<std::string> texts = world.exchange(text);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) { continue; }
    std::size_t at = 0;
    while (at < texts[0].size() && at < texts[rank].size() && texts[0][at] == texts[rank][at]) {
      ++at;
    }
    const auto line = [&](const std::string& of) {
      const std::size_t first = of.rfind('\n', at == 0 ? 0 : at - 1);
      const std::size_t begin = at == 0 || first == of.npos ? 0 : first + 1;
      const std::string found = of.substr(begin, of.find('\n', begin) - begin);
      return found.empty() ? std::string{"nothing more"} : "\"" + found + "\"";
    };
    throw ContractError{"ranks shard different modules: rank 0 has " + line(texts[0]) + ", rank " +
                        std::to_string(rank) + " has " + line(texts[rank])};
  }
}

void require_same_units(World& world, const std::vector<ModuleUnit>& units) {
  std::string text;
  for (const ModuleUnit& unit : units) {
    for (const ModuleParameter& parameter : unit.parameters) {
      text += unit.name + ": " + parameter.names.front() + " " +
              Shape{parameter.tensor.sizes().vec()}.to_string() + " " +
              c10::toString(parameter.tensor.scalar_type()) +
              (parameter.tensor.requires_grad() ? "" : " frozen") +
              (parameter.tensor.is_meta() ? " on meta" : "") + "\n";
    }
  }
  require_same_lines(world, text);
}

void broadcast_from_rank0(World& world, const std::vector<at::Tensor>& tensors) {
  if (world.size() == 1) { return; }
  const auto room = [](const at::Tensor& tensor) { return (tensor.nbytes() + 15) / 16 * 16; };
  std::size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) { bytes += room(tensor); }
  if (bytes == 0) { return; }
  const at::NoGradGuard no_grad;
  // One flat copy: tensors may have gaps, and elements without a DType.
  const at::Tensor flat = at::empty({static_cast<std::int64_t>(bytes / sizeof(float))},
                                    at::TensorOptions{}.dtype(at::kFloat).device(device_of(world)));
  const auto part = [&](std::size_t first, const at::Tensor& tensor) {
    return flat.view(at::kByte)
        .narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(tensor.nbytes()))
        .view(tensor.scalar_type())
        .view(tensor.sizes());
  };
  std::size_t first = 0;
  for (const at::Tensor& tensor : tensors) {
    if (world.rank() == 0) { part(first, tensor).copy_(tensor.detach()); }
    first += room(tensor);
  }
  world.compute_stream().wait();
  const Channel channel = world.gather_channel();
  Batch batch{"broadcast of a module's tensors"};
  batch.broadcast({flat.data_ptr(), flat.numel(), DType::fp32}, 0);
  channel.communicator.submit(std::move(batch), channel.stream);
  channel.stream.wait();
  first = 0;
  for (const at::Tensor& tensor : tensors) {
    if (world.rank() != 0) { tensor.detach().copy_(part(first, tensor)); }
    first += room(tensor);
  }
}

Initializer initial_values(::torch::nn::Module& module, const std::vector<ModuleUnit>& units,
                           const ShardOptions& options) {
  struct Origin {
    std::size_t unit;
    at::Tensor tensor;
  };
  std::unordered_map<std::string, Origin> by_name;
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (const ModuleParameter& parameter : units[i].parameters) {
      by_name.emplace(parameter.names.front(), Origin{i, parameter.tensor});
    }
  }
  const auto made = std::make_shared<MadeValues>(module, units, options);
  return [by_name = std::move(by_name), made](const ParameterInfo& info, std::int64_t first,
                                              std::span<float> out) {
    if (out.empty()) { return; }
    const at::NoGradGuard no_grad;
    const std::string name = full_name(info.unit, info.name);
    const Origin& place = by_name.at(name);
    const at::Tensor whole =
        place.tensor.is_meta() ? made->of(place.unit, name) : place.tensor.detach();
    const at::Tensor part =
        whole.reshape({-1}).narrow(0, first, static_cast<std::int64_t>(out.size()));
    const at::Tensor values = part.to(at::kCPU, at::kFloat).contiguous();
    std::memcpy(out.data(), values.data_ptr<float>(), out.size() * sizeof(float));
  };
}

void make_buffers(::torch::nn::Module& module, World& world) {
  const at::NoGradGuard no_grad;
  const auto parameters = module.parameters();
  const bool on_meta = std::any_of(parameters.begin(), parameters.end(),
                                   [](const at::Tensor& tensor) { return tensor.is_meta(); });
  std::string without;
  for (const auto& owner : module.named_modules("", /*include_self=*/true)) {
    const std::string prefix = owner.key().empty() ? "" : owner.key() + ".";
    std::string lacking;
    for (const auto& item : owner.value()->named_buffers(/*recurse=*/false)) {
      const at::Tensor& buffer = item.value();
      if (!buffer.defined()) { continue; }
      if (buffer.is_meta()) {
        set_memory(buffer, at::empty(buffer.sizes(), buffer.options().device(device_of(world))));
        lacking += (lacking.empty() ? "\"" : ", \"") + prefix + item.key() + "\"";
      } else if (on_meta && buffer.device() != device_of(world)) {
        buffer.set_data(buffer.to(device_of(world)));
      }
    }
    if (!lacking.empty() && !set_default_buffers(*owner.value())) {
      without += (without.empty() ? "" : ", ") + lacking;
    }
  }
  if (without.empty()) { return; }
  throw ContractError{
      "the module was built on meta, and its buffers have no source of values: " + without +
      "; make them on a device that is named (torch::arange(n, torch::kCPU)), or after on_meta"};
}

}  // namespace tessera::torch
