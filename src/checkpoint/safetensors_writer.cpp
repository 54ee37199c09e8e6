#include <fmt/format.h>

#include <utility>

#include "checkpoint/safetensors_header.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera {
namespace {

std::string header_of(const std::vector<SafetensorsWriter::Declared>& declared) {
  std::vector<checkpoint::HeaderTensor> tensors;
  tensors.reserve(declared.size());
  for (const SafetensorsWriter::Declared& tensor : declared) {
    tensors.push_back({tensor.name, tensor.dtype, &tensor.shape});
  }
  return checkpoint::format_header(tensors);
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<Declared> tensors)
    : tensors_{std::move(tensors)}, file_{std::move(path)} {
  const std::string header = header_of(tensors_);
  file_.write(std::as_bytes(std::span{header}));
}

void SafetensorsWriter::write(std::string_view name, std::span<const float> values) {
  expects(file_.is_open(), "SafetensorsWriter: write was called after the end or after an error");
  expects(next_ < tensors_.size(), "SafetensorsWriter: every declared tensor is already written");
  const Declared& declared = tensors_[next_];
  if (name != declared.name || std::ssize(values) != declared.shape.elems() ||
      declared.dtype != "F32") {
    throw ContractError(fmt::format(
        "SafetensorsWriter: '{}' of {} elements F32 was written, but the next is '{}' of {} {}",
        name, values.size(), declared.name, declared.shape.elems(), declared.dtype));
  }
  write_bytes(name, std::as_bytes(values));
}

void SafetensorsWriter::write_bytes(std::string_view name, std::span<const std::byte> bytes) {
  expects(file_.is_open(), "SafetensorsWriter: write was called after the end or after an error");
  expects(next_ < tensors_.size(), "SafetensorsWriter: every declared tensor is already written");
  const Declared& declared = tensors_[next_];
  const std::uint64_t all = static_cast<std::uint64_t>(declared.shape.elems()) *
                            checkpoint::dtype_bytes(declared.dtype).value();
  if (name != declared.name || bytes.size() > all - wrote_) {
    throw ContractError(
        fmt::format("SafetensorsWriter: {} bytes of '{}' were written, but the next are {} of '{}'",
                    bytes.size(), name, all - wrote_, declared.name));
  }
  file_.write(bytes);
  wrote_ += bytes.size();
  if (wrote_ == all) {
    ++next_;
    wrote_ = 0;
  }
}

void SafetensorsWriter::finish() {
  expects(file_.is_open(), "SafetensorsWriter: finish was called after the end or after an error");
  expects(next_ == tensors_.size(),
          "SafetensorsWriter: finish was called before the last tensor was written");
  file_.finish();
}

}  // namespace tessera
