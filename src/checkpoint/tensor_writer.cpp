#include "checkpoint/tensor_writer.hpp"

namespace tessera::checkpoint {

void TensorWriter::sum(std::size_t tensor, std::uint64_t first_byte,
                       std::span<const std::byte> bytes) {
  sums_.add(tensor, layout_.places()[tensor].bytes, layout_.tensors()[tensor].chunk_bytes,
            first_byte, bytes);
}

void TensorWriter::write(std::size_t tensor, std::uint64_t first_byte,
                         std::span<const std::byte> bytes) {
  const TensorPlace& place = layout_.places()[tensor];
  open(place.file).write_at(place.first_byte + first_byte, bytes);
}

void TensorWriter::write_headers() {
  for (std::size_t i = 0; i < layout_.files().size(); ++i) {
    open(i).write_at(0, std::as_bytes(std::span{layout_.files()[i].header}));
  }
  for (const CheckpointLayout::Index& index : layout_.indices()) {
    const auto file = files_.open(folder_ / index.name, index.text.size());
    file->write_at(0, std::as_bytes(std::span{index.text}));
    file->flush();
  }
}

void TensorWriter::make_files() {
  for (std::size_t i = 0; i < layout_.files().size(); ++i) { (void)open(i); }
  for (const CheckpointLayout::Index& index : layout_.indices()) {
    files_.open(folder_ / index.name, index.text.size())->flush();
  }
}

void TensorWriter::flush() {
  for (const auto& [number, file] : open_) { file->flush(); }
  open_.clear();
}

WritableFile& TensorWriter::open(std::size_t file) {
  std::unique_ptr<WritableFile>& opened = open_[file];
  if (!opened) {
    const CheckpointFile& described = layout_.files()[file];
    opened = files_.open(folder_ / described.name, described.bytes);
  }
  return *opened;
}

}  // namespace tessera::checkpoint
