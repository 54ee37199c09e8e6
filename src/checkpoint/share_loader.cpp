#include "checkpoint/share_loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/overflow.hpp"
#include "checkpoint/file_pages.hpp"
#include "checkpoint/file_values.hpp"
#include "checkpoint/moment_conversion.hpp"
#include "checkpoint/state_names.hpp"
#include "kernels/support/convert.hpp"
#include "kernels/support/master_parts.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "tessera/base/moment_format.hpp"
#include "tessera/base/shown.hpp"

namespace tessera {
namespace {

using engine::StateFormat;
using engine::StateKind;
using engine::StatePiece;
using engine::StateTensorInfo;
using How = TensorRecipe::How;

// Elements of a part, a multiple of kMomentBlock. At most four bytes of each go into a buffer.
constexpr std::int64_t kMostElems = ShareLoader::kMostBytes / 4;
constexpr std::int64_t kPartElems = kMostElems / 4;  // so that several parts fill a buffer well

/// Elements of a moment per scale; 1 for arrays with one number beside each element.
std::int64_t block_beside(const StateTensorInfo& target) {
  const bool moment = target.kind == StateKind::moment || target.kind == StateKind::scales;
  return moment ? kMomentBlock : 1;
}

std::int64_t elems_of(const std::vector<FileRun>& runs) {
  std::int64_t elems = 0;
  for (const FileRun& run : runs) { elems += run.elems.elems; }
  return elems;
}

template <class T>
std::span<T> array_at(void* data, std::int64_t elems) {
  return {static_cast<T*>(data), static_cast<std::size_t>(elems)};
}
template <class T>
std::span<const T> array_at(const void* data, std::int64_t elems) {
  return {static_cast<const T*>(data), static_cast<std::size_t>(elems)};
}

/// Throws ConfigError for finite values that the model's dtype rounds to infinity.
void require_range(const std::string& tensor, std::span<const float> values, StateKind kind,
                   DType to, std::int64_t first) {
  Overflows beyond;
  beyond.add(values, to, first);
  if (beyond.count == 0) { return; }
  throw ConfigError{
      fmt::format("tensor '{}' cannot be loaded: {}, in which the model keeps it; load it into a "
                  "model that keeps it in {} (`{}`)",
                  shown(tensor), beyond.text(to), to == DType::fp16 ? "bf16 or fp32" : "fp32",
                  kind == StateKind::moment ? "moments" : "compute")};
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

// In the order of the files, so that each is read from beginning to end.
void ShareLoader::plan_parts() {
  std::vector<Part> parts;
  for (const StatePiece& piece : state_.share()) {
    const TensorRecipe& recipe = plan_.recipes[piece.tensor];
    const bool scales = state_.tensors()[piece.tensor].kind == StateKind::scales;
    const bool in_runs = lies_in_runs(piece);
    const std::int64_t most = (recipe.beside ? kMostElems : kPartElems) /
                              (scales && recipe.how == How::convert ? kMomentBlock : 1);
    for (std::int64_t at = 0; at < piece.elems.elems && recipe.how != How::keep; at += most) {
      parts.push_back(part_of(piece, at, std::min(most, piece.elems.elems - at), in_runs));
    }
  }
  const auto place = [&](const Part& part) {
    const ManifestTensor& tensor = source_.manifest().tensors[part.recipe->from.tensor];
    return std::tuple{part.recipe->how == How::zeros, std::string_view{tensor.file},
                      tensor.first_byte, part.from_first};
  };
  if (!source_.manifest().tensors.empty()) { std::ranges::sort(parts, {}, place); }
  for (const Part& part : parts) {
    if (rounds_.empty() || rounds_.back().end + part.from_bytes + part.beside_bytes > kMostBytes) {
      rounds_.emplace_back();
    }
    append(rounds_.back(), part);
  }
}

ShareLoader::Part ShareLoader::part_of(const StatePiece& piece, std::int64_t first,
                                       std::int64_t count, bool in_runs) const {
  const StateTensorInfo& target = state_.tensors()[piece.tensor];
  const TensorRecipe& recipe = plan_.recipes[piece.tensor];
  Part part{.piece = &piece, .recipe = &recipe, .first = first, .count = count};
  if (recipe.how == How::zeros) {
    part.from_bytes = static_cast<std::size_t>(count) * engine::bytes_of(target.format);
    return part;
  }
  part.in_runs = in_runs;
  piece.for_each_run(
      {first, 1}, [&](const Range& whole, std::int64_t /*at*/) { part.from_first = whole.first; });
  part.from_count = count;
  if (target.kind == StateKind::scales && recipe.how == How::convert) {
    part.from_first *= kMomentBlock;
    part.from_count =
        std::min(count * kMomentBlock, target.parameter->shape.elems() - part.from_first);
  }
  if (in_runs) { part.from_count = elems_of(runs_of(part)); }
  part.from_bytes = static_cast<std::size_t>(part.from_count) * size_of_source(recipe.from.tensor);
  if (!recipe.beside) { return part; }
  const std::int64_t block = block_beside(target);
  part.beside_first = part.from_first / block;
  part.beside_count = (part.from_first + part.from_count + block - 1) / block - part.beside_first;
  if (in_runs) { part.beside_count = elems_of(runs_beside(part)); }
  part.beside_bytes =
      static_cast<std::size_t>(part.beside_count) * size_of_source(recipe.beside->tensor);
  return part;
}

/// Whether the elements of a piece are not contiguous in the files, or share chunks with others.
bool ShareLoader::lies_in_runs(const StatePiece& piece) const {
  const StateTensorInfo& target = state_.tensors()[piece.tensor];
  const bool scales = target.kind == StateKind::scales;
  if (!piece.is_one_run()) { return true; }
  const std::int64_t end = piece.first() + piece.elems.elems;
  const auto is_cut = [&](std::int64_t at) { return !scales && at % kChunkElems != 0; };
  return is_cut(piece.first()) || (is_cut(end) && end != target.elems);
}

/// The elements of `from` for a part that lies in runs.
std::vector<FileRun> ShareLoader::runs_of(const Part& part) const {
  const StateTensorInfo& target = info(part);
  const bool blocks = target.kind == StateKind::scales && part.recipe->how == How::convert;
  const std::int64_t each = blocks ? kMomentBlock : 1;
  const std::int64_t elems = blocks ? target.parameter->shape.elems() : target.elems;
  std::vector<FileRun> runs;
  part.piece->for_each_run({part.first, part.count}, [&](const Range& whole, std::int64_t) {
    const std::int64_t end = std::min(whole.end() * each, elems);
    for (std::int64_t at = whole.first * each; at < end; at += kMostRunElems) {
      runs.push_back({{at, std::min(kMostRunElems, end - at)}, at});
    }
  });
  return runs;
}

/// The elements of `beside` for each of those runs. A scale whose block begins in another run is
/// summed there.
std::vector<FileRun> ShareLoader::runs_beside(const Part& part) const {
  const std::int64_t block = block_beside(info(part));
  std::vector<FileRun> runs;
  for (const FileRun& run : runs_of(part)) {
    const std::int64_t first = run.elems.first / block;
    const std::int64_t end = ceil_div(run.elems.end(), block);
    runs.push_back({{first, end - first}, ceil_div(run.elems.first, block)});
  }
  return runs;
}

void ShareLoader::append(Round& round, Part part) const {
  if (part.recipe->how == How::zeros || part.in_runs) {
    part.from_at = page_after(round.end);
    round.end = part.from_at + part.from_bytes;
  } else {
    part.from_at = append(round, part.recipe->from, part.from_first, part.from_bytes);
  }
  if (part.recipe->beside && part.in_runs) {
    part.beside_at = page_after(round.end);
    round.end = part.beside_at + part.beside_bytes;
  } else if (part.recipe->beside) {
    part.beside_at = append(round, *part.recipe->beside, part.beside_first, part.beside_bytes);
  }
  round.parts.push_back(part);
}

/// Places elements from `first` on in the buffer. Data that is contiguous in a file stays
/// contiguous; other data gets pages of its own, with the same offset in the page as in the file.
std::size_t ShareLoader::append(Round& round, const TensorSource& from, std::int64_t first,
                                std::size_t bytes) const {
  const ManifestTensor& tensor = source_.manifest().tensors[from.tensor];
  const std::uint64_t in_file =
      tensor.first_byte + static_cast<std::uint64_t>(first) * size_of_source(from.tensor);
  const bool end_to_end = !round.runs.empty() && *round.runs.back().file == tensor.file &&
                          round.runs.back().first + round.runs.back().bytes == in_file &&
                          round.runs.back().at + round.runs.back().bytes == round.end;
  if (!end_to_end) {
    round.runs.push_back({.file = &tensor.file,
                          .first = in_file,
                          .at = place_alike(page_after(round.end), in_file)});
  }
  Run& run = round.runs.back();
  const std::size_t at = run.at + run.bytes;
  run.bytes += bytes;
  round.end = run.at + run.bytes;
  return at;
}

void ShareLoader::take_memory() {
  std::size_t bytes = 0;
  std::int64_t elems = 0;
  for (const Round& round : rounds_) {
    bytes = std::max(bytes, round.end);
    for (const Part& part : round.parts) {
      if (part.recipe->how == How::convert) { elems = std::max(elems, part.from_count); }
    }
  }
  // One contiguous allocation: disks read much faster into large pages of memory than into small
  // ones.
  stride_ = page_after(bytes);
  const std::size_t count = std::min(rounds_.size(), kBuffers);
  buffers_ = world_.allocate_host(Category::workspace, bytes == 0 ? 0 : count * stride_ + kFilePage,
                                  "checkpoint reads");
  const std::size_t floats = static_cast<std::size_t>(elems) * sizeof(float);
  values_ = world_.allocate_host(Category::workspace, floats, "checkpoint values");
  encoded_ = world_.allocate_host(Category::workspace, floats, "checkpoint values");
}

std::byte* ShareLoader::buffer_of(std::size_t round) {
  return first_page(buffers_.data()) + round % kBuffers * stride_;
}

bool ShareLoader::load(SumTable& sums, std::chrono::milliseconds longest) {
  const ReadAhead::Clock::time_point end = ReadAhead::Clock::now() + longest;
  if (!ahead_) {
    ahead_.emplace(rounds_.size(), kBuffers, kReaders,
                   [this](std::size_t round, std::size_t reader) { fill(round, reader); });
  }
  while (ahead_->next() < rounds_.size()) {
    if (!ahead_->wait_until(end)) { return false; }
    const std::size_t round = ahead_->next();
    for (const Part& part : rounds_[round].parts) { write(part, buffer_of(round)); }
    ahead_->release();
    if (ReadAhead::Clock::now() >= end) { break; }
  }
  if (ahead_->next() < rounds_.size()) { return false; }
  for (SumTable& read : sums_) { sums.add(std::exchange(read, {})); }
  return true;
}

/// Reads and sums a round, beside other threads.
void ShareLoader::fill(std::size_t number, std::size_t reader) {
  const Round& round = rounds_[number];
  std::byte* const buffer = buffer_of(number);
  for (const Run& run : round.runs) { read(run, buffer + run.at); }
  for (const Part& part : round.parts) {
    if (part.recipe->how == How::zeros) {
      std::memset(buffer + part.from_at, 0, part.from_bytes);
    } else if (part.in_runs) {
      fill_runs(part, buffer, sums_[reader]);
    } else {
      sum(part, buffer, sums_[reader]);
    }
  }
}

void ShareLoader::fill_runs(const Part& part, std::byte* buffer, SumTable& sums) const {
  const auto read = [&](const TensorSource& from, const std::vector<FileRun>& runs,
                        std::size_t at) {
    const FileTensor tensor{.source = source_,
                            .number = from.tensor,
                            .elem_bytes = size_of_source(from.tensor),
                            .summed = from.summed};
    read_runs(tensor, runs, buffer + at, sums);
  };
  read(part.recipe->from, runs_of(part), part.from_at);
  if (part.recipe->beside) { read(*part.recipe->beside, runs_beside(part), part.beside_at); }
}

/// Reads whole pages where that bypasses the system's cache: edges through the cache cost more.
void ShareLoader::read(const Run& run, std::byte* to) {
  if (run.bytes < kLeastPastCache) { return source_.read(*run.file, run.first, {to, run.bytes}); }
  const std::size_t before = run.first % kFilePage;
  const std::uint64_t end =
      std::min(page_after(run.first + run.bytes), source_.manifest().files.at(*run.file));
  source_.read(*run.file, run.first - before, {to - before, end - (run.first - before)});
}

void ShareLoader::sum(const Part& part, const std::byte* buffer, SumTable& sums) const {
  const TensorRecipe& recipe = *part.recipe;
  sum(recipe.from, part.from_first, part.from_count, buffer + part.from_at, sums);
  if (!recipe.beside) { return; }
  // A scale whose block begins in another piece is summed there.
  const std::int64_t skipped = part.from_first % block_beside(info(part)) != 0 ? 1 : 0;
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
  if (!part.recipe->beside) { return kernels::widen(values, {from, *dtype_named(dtype)}, elems); }
  if (dtype == "U8") { return dequantise(part, buffer, values); }
  kernels::join_masters(values, static_cast<const bfloat16*>(from),
                        static_cast<const std::uint16_t*>(beside), elems);
}

void ShareLoader::dequantise(const Part& part, const std::byte* buffer, float* values) const {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(buffer + part.from_at);
  const auto* scales = reinterpret_cast<const float*>(buffer + part.beside_at);
  const auto decode = [&](const Range& run, std::int64_t count) {
    dequantise_moment(info(part).index, run.first % kMomentBlock,
                      array_at<std::uint8_t>(codes, run.elems), array_at<float>(scales, count),
                      array_at<float>(values, run.elems));
    codes += run.elems;
    scales += count;
    values += run.elems;
  };
  if (!part.in_runs) { return decode({part.from_first, part.from_count}, part.beside_count); }
  const std::vector<FileRun> beside = runs_beside(part);
  for (std::size_t i = 0; const FileRun& run : runs_of(part)) {
    decode(run.elems, beside[i++].elems.elems);
  }
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
  if (target.format == StateFormat::bf16 || target.format == StateFormat::fp16) {
    require_range(source_.manifest().tensors[part.recipe->from.tensor].name,
                  array_at<float>(values, elems), target.kind,
                  target.format == StateFormat::bf16 ? DType::bf16 : DType::fp16, part.from_first);
  }
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
