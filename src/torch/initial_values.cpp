#include "torch/initial_values.hpp"

#include <ATen/core/Tensor.h>

#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/comm/batch.hpp"

namespace tessera::torch {

void require_same_units(World& world, const std::vector<ModuleUnit>& units) {
  if (world.size() == 1) { return; }
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

void broadcast_from_rank0(World& world, const std::vector<at::Tensor>& tensors) {
  if (world.size() == 1) { return; }
  std::size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) { bytes += (tensor.nbytes() + 15) / 16 * 16; }
  if (bytes == 0) { return; }
  const at::NoGradGuard no_grad;
  // One flat copy: tensors may have gaps, and elements that no DType names.
  const at::Tensor flat = at::empty({static_cast<std::int64_t>(bytes / sizeof(float))},
                                    tensors[0].options().dtype(at::kFloat).requires_grad(false));
  const auto part = [&](std::size_t first, const at::Tensor& tensor) {
    return flat.view(at::kByte)
        .narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(tensor.nbytes()))
        .view(tensor.scalar_type())
        .view(tensor.sizes());
  };
  std::size_t first = 0;
  for (const at::Tensor& tensor : tensors) {
    if (world.rank() == 0) { part(first, tensor).copy_(tensor); }
    first += (tensor.nbytes() + 15) / 16 * 16;
  }
  const Channel channel = world.gather_channel();
  Batch batch{"broadcast of a module's tensors"};
  batch.broadcast({flat.data_ptr(), flat.numel(), DType::fp32}, 0);
  channel.communicator.submit(std::move(batch), channel.stream);
  channel.stream.wait();
  first = 0;
  for (const at::Tensor& tensor : tensors) {
    if (world.rank() != 0) { tensor.detach().copy_(part(first, tensor)); }
    first += (tensor.nbytes() + 15) / 16 * 16;
  }
}

Initializer initial_values(::torch::nn::Module& /*module*/, const std::vector<ModuleUnit>& units,
                           const ShardOptions& /*options*/) {
  std::unordered_map<std::string, at::Tensor> by_name;
  for (const ModuleUnit& unit : units) {
    for (const ModuleParameter& parameter : unit.parameters) {
      by_name.emplace(parameter.names.front(), parameter.tensor);
    }
  }
  return [by_name = std::move(by_name)](const ParameterInfo& info, std::int64_t first,
                                        std::span<float> out) {
    const at::NoGradGuard no_grad;
    const at::Tensor& whole = by_name.at(full_name(info.unit, info.name));
    const at::Tensor part =
        whole.detach().reshape({-1}).narrow(0, first, static_cast<std::int64_t>(out.size()));
    const at::Tensor values = part.to(at::kCPU, at::kFloat).contiguous();
    std::memcpy(out.data(), values.data_ptr<float>(), out.size() * sizeof(float));
  };
}

}  // namespace tessera::torch
