#include "checkpoint/loaded_extras.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/collective_failure.hpp"
#include "checkpoint/saved_extras.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::checkpoint {
namespace {

// Buffers are sent as texts of at most this many bytes, a multiple of every chunk.
constexpr std::uint64_t kHandedOnAtOnce = std::uint64_t{1} << 20;

std::size_t find_extra(const Manifest& manifest, const std::string& name) {
  const auto found = std::ranges::find_if(manifest.tensors, [&](const ManifestTensor& tensor) {
    return tensor.role == "extra" && tensor.name == name;
  });
  return static_cast<std::size_t>(found - manifest.tensors.begin());
}

/// Returns, on every rank, the bytes of a tensor that rank 0 has read.
std::string handed_on(World& world, LoadSource& source, const ManifestTensor& tensor,
                      std::uint64_t first, std::uint64_t count) {
  std::string bytes(world.rank() == 0 ? count : 0, '\0');
  agree_on_failure(world, failure_of([&] {
                     if (world.rank() == 0) {
                       source.read(tensor.file, tensor.first_byte + first,
                                   std::as_writable_bytes(std::span{bytes}));
                     }
                   }));
  return world.exchange(bytes).front();
}

}  // namespace

void require_extras(const Manifest& manifest, const CheckpointExtras& extras,
                    const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError{fmt::format("{}: {}", path, why)};
  };
  (void)layout_of_extras(extras.buffers);  // checks names and sizes
  for (const CheckpointBuffer& buffer : extras.buffers) {
    const std::size_t at = find_extra(manifest, buffer.name);
    if (at == manifest.tensors.size()) {
      refuse(fmt::format("the checkpoint has no buffer '{}'", shown(buffer.name)));
    }
    const ManifestTensor& tensor = manifest.tensors[at];
    if (tensor.shape != buffer.shape || tensor.dtype != buffer.values.dtype) {
      refuse(fmt::format("buffer '{}' is {} {} in the checkpoint, but {} {} in the program",
                         shown(buffer.name), shown(tensor.dtype), tensor.shape.to_string(),
                         buffer.values.dtype, buffer.shape.to_string()));
    }
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    const bool known = std::ranges::any_of(
        extras.buffers, [&](const CheckpointBuffer& buffer) { return buffer.name == tensor.name; });
    if (tensor.role == "extra" && !known) {
      refuse(fmt::format("the checkpoint has a buffer '{}', which the program does not load",
                         shown(tensor.name)));
    }
  }
}

void load_extras(World& world, LoadSource& source, const CheckpointExtras& extras, SumTable& sums,
                 std::vector<bool>& summed) {
  for (const CheckpointBuffer& buffer : extras.buffers) {
    const std::size_t at = find_extra(source.manifest(), buffer.name);
    const ManifestTensor& tensor = source.manifest().tensors[at];
    summed[at] = true;
    for (std::uint64_t first = 0; first < tensor.bytes; first += kHandedOnAtOnce) {
      const std::uint64_t count = std::min(kHandedOnAtOnce, tensor.bytes - first);
      const std::string bytes = handed_on(world, source, tensor, first, count);
      if (world.rank() == 0) {
        sums.add(at, tensor.bytes, tensor.chunk_bytes, first, std::as_bytes(std::span{bytes}));
      }
      world.device().copy_in(static_cast<std::byte*>(buffer.values.data) + first, bytes.data(),
                             bytes.size(), world.compute_stream());
      world.compute_stream().wait();
    }
  }
}

}  // namespace tessera::checkpoint
