#include "checkpoint/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "checkpoint/safetensors_header.hpp"
#include "checkpoint/weights_index.hpp"
#include "tessera/base/error.hpp"

namespace tessera::checkpoint {
namespace {

std::uint64_t bytes_of_tensor(const CheckpointTensor& tensor) {
  const std::optional<std::uint64_t> width = dtype_bytes(tensor.dtype);
  if (!width) {
    throw ContractError(
        fmt::format("checkpoint: tensor '{}' has the unknown dtype {}", tensor.name, tensor.dtype));
  }
  return static_cast<std::uint64_t>(tensor.shape.elems()) * *width;
}

// The index of the first tensor of each file of a set, and the number of tensors.
std::vector<std::size_t> divide(std::span<const CheckpointTensor> tensors,
                                std::uint64_t shard_bytes) {
  std::vector<std::size_t> begins{0};
  std::uint64_t bytes = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::uint64_t more = bytes_of_tensor(tensors[t]);
    if (t > begins.back() && (bytes > shard_bytes || more > shard_bytes - bytes)) {
      begins.push_back(t);
      bytes = 0;
    }
    bytes += more;
  }
  begins.push_back(tensors.size());
  return begins;
}

// The order of tensors in their file: wide elements first, so that each tensor is aligned to its
// element size, as readers that map the file expect.
std::vector<std::size_t> order_in_file(std::span<const CheckpointTensor> tensors) {
  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) { order[i] = i; }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto of_a = dtype_bytes(tensors[a].dtype);
    const auto of_b = dtype_bytes(tensors[b].dtype);
    return of_a != of_b ? of_a > of_b : a < b;
  });
  return order;
}

}  // namespace

CheckpointLayout::CheckpointLayout(std::vector<Set> sets, std::uint64_t shard_bytes) {
  expects(shard_bytes > 0, "checkpoint: shard_bytes is 0; choose 1 byte or more");
  for (Set& set : sets) { add(std::move(set), shard_bytes); }
}

void CheckpointLayout::add(Set set, std::uint64_t shard_bytes) {
  if (set.tensors.empty()) { return; }
  const std::span<const CheckpointTensor> tensors{set.tensors};
  const std::vector<std::size_t> begins = divide(tensors, shard_bytes);
  const std::size_t count = begins.size() - 1;
  const std::size_t first_tensor = places_.size();
  places_.resize(first_tensor + tensors.size());
  for (std::size_t f = 0; f < count; ++f) {
    add_file(count == 1 ? set.name + ".safetensors"
                        : fmt::format("{}-{:05}-of-{:05}.safetensors", set.name, f + 1, count),
             tensors.subspan(begins[f], begins[f + 1] - begins[f]),
             std::span{places_}.subspan(first_tensor + begins[f]));
  }
  if (count > 1) {
    std::vector<std::pair<std::string_view, std::string_view>> pairs;
    std::uint64_t bytes = 0;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const TensorPlace& place = places_[first_tensor + t];
      pairs.emplace_back(tensors[t].name, files_[place.file].name);
      bytes += place.bytes;
    }
    indices_.push_back({set.name + std::string{kIndexEnd}, format_index(std::move(pairs), bytes)});
  }
  std::move(set.tensors.begin(), set.tensors.end(), std::back_inserter(tensors_));
}

void CheckpointLayout::add_file(std::string name, std::span<const CheckpointTensor> tensors,
                                std::span<TensorPlace> places) {
  const std::vector<std::size_t> order = order_in_file(tensors);
  std::vector<HeaderTensor> declared;
  declared.reserve(order.size());
  for (const std::size_t i : order) {
    declared.push_back({tensors[i].name, tensors[i].dtype, &tensors[i].shape});
  }
  CheckpointFile file{std::move(name), format_header(declared), 0};
  file.bytes = file.header.size();
  for (const std::size_t i : order) {
    places[i] = {files_.size(), file.bytes, bytes_of_tensor(tensors[i])};
    file.bytes += places[i].bytes;
  }
  files_.push_back(std::move(file));
}

}  // namespace tessera::checkpoint
