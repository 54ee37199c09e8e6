#include <fmt/format.h>

#include <utility>

#include "checkpoint/safetensors_header.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera {

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<Declared> tensors)
    : tensors_{std::move(tensors)}, file_{std::move(path)} {
  const std::string header = format_header(tensors_);
  file_.write(std::as_bytes(std::span{header}));
}

void SafetensorsWriter::write(std::string_view name, std::span<const float> values) {
  expects(file_.is_open(), "SafetensorsWriter: write after the end or after an error");
  expects(next_ < tensors_.size(), "SafetensorsWriter: every declared tensor has been written");
  const Declared& declared = tensors_[next_];
  if (name != declared.name || std::ssize(values) != declared.shape.elems()) {
    throw ContractError(
        fmt::format("SafetensorsWriter: '{}' of {} elements was written, the next is '{}' of {}",
                    name, values.size(), declared.name, declared.shape.elems()));
  }
  file_.write(std::as_bytes(values));
  ++next_;
}

void SafetensorsWriter::finish() {
  expects(file_.is_open(), "SafetensorsWriter: finish after the end or after an error");
  expects(next_ == tensors_.size(), "SafetensorsWriter: finish before the last tensor");
  file_.finish();
}

}  // namespace tessera
