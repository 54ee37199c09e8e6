#include "checkpoint/share_loader.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <tuple>

#include "checkpoint/file_pages.hpp"
#include "checkpoint/moment_conversion.hpp"
#include "kernels/support/convert.hpp"
#include "kernels/support/master_parts.hpp"
#include "tessera/base/moment_format.hpp"

namespace tessera {
namespace {

using engine::StateFormat;
using engine::StateKind;
using engine::StatePiece;
using engine::StateTensorInfo;
using How = TensorRecipe::How;

// A multiple of kMomentBlock. Four bytes of each go into a buffer.
constexpr std::int64_t kMostElems = ShareLoader::kMostBytes / 8;
constexpr std::size_t kPlaceAlign = 64;  // of what a buffer holds

std::size_t aligned_place(std::size_t at) {
  return (at + kPlaceAlign - 1) / kPlaceAlign * kPlaceAlign;
}

DType dtype_of(const std::string& name) {
  if (name == "BF16") { return DType::bf16; }
  return name == "F16" ? DType::fp16 : DType::fp32;
}

template <class T>
std::span<T> array_at(void* data, std::int64_t elems) {
  return {static_cast<T*>(data), static_cast<std::size_t>(elems)};
}
template <class T>
std::span<const T> array_at(const void* data, std::int64_t elems) {
  return {static_cast<const T*>(data), static_cast<std::size_t>(elems)};
}

}  // namespace

ShareLoader::ShareLoader(World& world, engine::TrainingState& state, const LoadPlan& plan,
                         LoadSource& source)
    : world_{world}, state_{state}, plan_{plan}, source_{source} {
  plan_parts();
  take_memory();
}

const StateTensorInfo& ShareLoader::info(const Part& part) const {
  return state_.tensors()[part.piece->tensor];
}

std::size_t ShareLoader::size_of_source(std::size_t tensor) const {
  const std::string& dtype = source_.manifest().tensors[tensor].dtype;
  if (dtype == "F32") { return 4; }
  return dtype == "U8" ? 1 : 2;
}

// In the order of the files, so that each is read from its beginning to its end.
void ShareLoader::plan_parts() {
  std::vector<Part> parts;
  for (const StatePiece& piece : state_.share()) {
    const How how = plan_.recipes[piece.tensor].how;
    const bool scales = state_.tensors()[piece.tensor].kind == StateKind::scales;
    const std::int64_t most =
        scales && how == How::convert ? kMostElems / kMomentBlock : kMostElems;
    for (std::int64_t at = 0; at < piece.elems.elems && how != How::keep; at += most) {
      parts.push_back(part_of(piece, at, std::min(most, piece.elems.elems - at)));
    }
  }
  const auto place = [&](const Part& part) {
    const ManifestTensor& tensor = source_.manifest().tensors[part.recipe->from.tensor];
    return std::tuple{part.recipe->how == How::zeros, std::string_view{tensor.file},
                      tensor.first_byte, part.from_first};
  };
  if (!source_.manifest().tensors.empty()) { std::ranges::sort(parts, {}, place); }

  std::size_t used = 0;
  for (Part& part : parts) {
    if (rounds_.empty() || used + part.end > kMostBytes + kFilePage) {
      rounds_.emplace_back();
      used = 0;
    }
    if (part.end >= kLeastPastCache && part.recipe->how != How::zeros) {
      used = place_alike(used, first_in_file(part));
    }
    part.from_at += used;
    part.beside_at += used;
    part.end += used;
    used = part.end;
    rounds_.back().push_back(part);
  }
}

std::uint64_t ShareLoader::first_in_file(const Part& part) const {
  const TensorSource& from = part.recipe->from;
  return source_.manifest().tensors[from.tensor].first_byte +
         static_cast<std::uint64_t>(part.from_first) * size_of_source(from.tensor);
}

ShareLoader::Part ShareLoader::part_of(const StatePiece& piece, std::int64_t first,
                                       std::int64_t count) const {
  const StateTensorInfo& target = state_.tensors()[piece.tensor];
  const TensorRecipe& recipe = plan_.recipes[piece.tensor];
  Part part{.piece = &piece, .recipe = &recipe, .first = first, .count = count};
  if (recipe.how == How::zeros) {
    part.end = aligned_place(static_cast<std::size_t>(count) * engine::bytes_of(target.format));
    return part;
  }
  part.from_first = piece.elems.first + first;
  part.from_count = count;
  if (target.kind == StateKind::scales && recipe.how == How::convert) {
    part.from_first *= kMomentBlock;
    part.from_count =
        std::min(count * kMomentBlock, target.parameter->shape.elems() - part.from_first);
  }
  part.beside_at =
      aligned_place(static_cast<std::size_t>(part.from_count) * size_of_source(recipe.from.tensor));
  part.end = part.beside_at;
  if (!recipe.beside) { return part; }
  const bool scales = target.kind == StateKind::moment || target.kind == StateKind::scales;
  const std::int64_t block = scales ? kMomentBlock : 1;
  part.beside_first = part.from_first / block;
  part.beside_count = (part.from_first + part.from_count + block - 1) / block - part.beside_first;
  part.end += aligned_place(static_cast<std::size_t>(part.beside_count) *
                            size_of_source(recipe.beside->tensor));
  return part;
}

void ShareLoader::take_memory() {
  std::size_t bytes = 0;
  std::int64_t elems = 0;
  for (const std::vector<Part>& parts : rounds_) {
    bytes = std::max(bytes, parts.back().end);
    for (const Part& part : parts) {
      if (part.recipe->how == How::convert) { elems = std::max(elems, part.from_count); }
    }
  }
  for (Buffer& buffer : buffers_) {
    buffer = world_.allocate_host(Category::workspace, bytes == 0 ? 0 : bytes + kFilePage,
                                  "checkpoint reads");
  }
  const std::size_t floats = static_cast<std::size_t>(elems) * sizeof(float);
  values_ = world_.allocate_host(Category::workspace, floats, "checkpoint values");
  encoded_ = world_.allocate_host(Category::workspace, floats, "checkpoint values");
}

std::byte* ShareLoader::buffer_of(std::size_t round) {
  return first_page(buffers_[round % 2].data());
}

void ShareLoader::begin_reading(std::size_t round) {
  if (round == rounds_.size()) { return; }
  reading_.emplace([this, round] { read(rounds_[round], buffer_of(round)); });
}

bool ShareLoader::load(SumTable& sums, std::chrono::milliseconds longest) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + longest;
  if (!reading_) { begin_reading(0); }
  while (round_ < rounds_.size()) {
    reading_->wait(std::max(std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()),
                            std::chrono::milliseconds{0}));
    if (!reading_->has_ended()) { return false; }
    if (const std::exception_ptr failure = reading_->failure()) { std::rethrow_exception(failure); }
    begin_reading(round_ + 1);
    for (const Part& part : rounds_[round_]) {
      sum(part, buffer_of(round_), sums);
      write(part, buffer_of(round_));
    }
    ++round_;
    if (Clock::now() >= end) { break; }
  }
  return round_ == rounds_.size();
}

void ShareLoader::read(const std::vector<Part>& parts, std::byte* buffer) {
  for (const Part& part : parts) {
    const TensorRecipe& recipe = *part.recipe;
    if (recipe.how == How::zeros) {
      std::memset(buffer + part.from_at, 0, part.end - part.from_at);
      continue;
    }
    read(recipe.from, part.from_first, part.from_count, buffer + part.from_at);
    if (recipe.beside) {
      read(*recipe.beside, part.beside_first, part.beside_count, buffer + part.beside_at);
    }
  }
}

void ShareLoader::read(const TensorSource& from, std::int64_t first, std::int64_t count,
                       std::byte* to) {
  const std::size_t size = size_of_source(from.tensor);
  source_.read(from.tensor, static_cast<std::uint64_t>(first) * size,
               {to, static_cast<std::size_t>(count) * size});
}

void ShareLoader::sum(const Part& part, const std::byte* buffer, SumTable& sums) const {
  const TensorRecipe& recipe = *part.recipe;
  if (recipe.how == How::zeros) { return; }
  sum(recipe.from, part.from_first, part.from_count, buffer + part.from_at, sums);
  if (!recipe.beside) { return; }
  // A scale of a block that begins in another piece is summed there.
  const bool scales = info(part).kind == StateKind::moment || info(part).kind == StateKind::scales;
  const std::int64_t skipped = scales && part.from_first % kMomentBlock != 0 ? 1 : 0;
  sum(*recipe.beside, part.beside_first + skipped, part.beside_count - skipped,
      buffer + part.beside_at +
          static_cast<std::size_t>(skipped) * size_of_source(recipe.beside->tensor),
      sums);
}

void ShareLoader::sum(const TensorSource& from, std::int64_t first, std::int64_t count,
                      const std::byte* bytes, SumTable& sums) const {
  const ManifestTensor& tensor = source_.manifest().tensors[from.tensor];
  if (!from.summed || tensor.sums.empty() || count <= 0) { return; }
  const std::size_t size = size_of_source(from.tensor);
  sums.add(from.tensor, tensor.bytes, tensor.chunk_bytes, static_cast<std::uint64_t>(first) * size,
           {bytes, static_cast<std::size_t>(count) * size});
}

void ShareLoader::write(const Part& part, const std::byte* buffer) {
  if (part.recipe->how != How::convert) {
    return state_.write(*part.piece, part.first, part.count, buffer + part.from_at);
  }
  decode(part, buffer, values_.floats());
  state_.write(*part.piece, part.first, part.count, encode(part, values_.floats()));
}

void ShareLoader::decode(const Part& part, const std::byte* buffer, float* values) const {
  const void* const from = buffer + part.from_at;
  const void* const beside = buffer + part.beside_at;
  const std::string& dtype = source_.manifest().tensors[part.recipe->from.tensor].dtype;
  const std::int64_t elems = part.from_count;
  if (!part.recipe->beside) { return kernels::widen(values, {from, dtype_of(dtype)}, elems); }
  if (dtype == "U8") {
    return dequantise_moment(
        info(part).index, part.from_first % kMomentBlock, array_at<std::uint8_t>(from, elems),
        array_at<float>(beside, part.beside_count), array_at<float>(values, elems));
  }
  kernels::join_masters(values, static_cast<const bfloat16*>(from),
                        static_cast<const std::uint16_t*>(beside), elems);
}

const void* ShareLoader::encode(const Part& part, const float* values) {
  const StateTensorInfo& target = info(part);
  void* const to = encoded_.data();
  const std::int64_t elems = part.from_count;
  switch (target.kind) {
    case StateKind::remainder:
      kernels::store_part({to, DType::bf16}, kernels::MasterPart::remainder, values, elems);
      return to;
    case StateKind::scales:
      quantise_moment(target.index, array_at<float>(values, elems), {},
                      array_at<float>(to, part.count));
      return to;
    default:
      break;
  }
  const bool moment = target.kind == StateKind::moment;
  const auto part_kind = moment ? kernels::MasterPart::value : kernels::MasterPart::parameter;
  switch (target.format) {
    case StateFormat::bf16:
      kernels::store_part({to, DType::bf16}, part_kind, values, elems);
      return to;
    case StateFormat::fp16:
      kernels::store_part({to, DType::fp16}, part_kind, values, elems);
      return to;
    case StateFormat::u8:
      quantise_moment(target.index, array_at<float>(values, elems),
                      array_at<std::uint8_t>(to, elems), {});
      return to;
    default:
      return values;
  }
}

}  // namespace tessera
