#include "checkpoint/share_loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
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

namespace tessera::checkpoint {
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

const StatePiece& ShareLoader::piece(const BufferPart& part) const {
  return state_.share()[part.piece];
}

const StateTensorInfo& ShareLoader::info(const BufferPart& part) const {
  return state_.tensors()[piece(part).tensor];
}

const TensorRecipe& ShareLoader::recipe(const BufferPart& part) const {
  return plan_.recipes[piece(part).tensor];
}

const ManifestTensor& ShareLoader::listed(std::size_t tensor) const {
  return source_.manifest().tensors[tensor];
}

std::size_t ShareLoader::size_of_source(std::size_t tensor) const {
  const std::string& dtype = listed(tensor).dtype;
  if (dtype == "F32") { return 4; }
  return dtype == "U8" ? 1 : 2;
}

FileArray ShareLoader::array_of(std::size_t tensor) const {
  const auto file =
      std::ranges::lower_bound(files_, std::string_view{listed(tensor).file}, {},
                               [](const std::string* name) { return std::string_view{*name}; });
  return {static_cast<std::size_t>(file - files_.begin()), listed(tensor).first_byte,
          size_of_source(tensor)};
}

// In the order of the files, so that each is read from beginning to end.
void ShareLoader::plan_parts() {
  for (const auto& [name, bytes] : source_.manifest().files) { files_.push_back(&name); }
  std::vector<BufferPart> parts;
  for (std::size_t number = 0; number < state_.share().size(); ++number) {
    const StatePiece& piece = state_.share()[number];
    const TensorRecipe& recipe = plan_.recipes[piece.tensor];
    const bool scales = state_.tensors()[piece.tensor].kind == StateKind::scales;
    const bool in_runs = lies_in_runs(piece);
    const std::int64_t most = (recipe.beside ? kMostElems : kPartElems) /
                              (scales && recipe.how == How::convert ? kMomentBlock : 1);
    for (std::int64_t at = 0; at < piece.elems.elems && recipe.how != How::keep; at += most) {
      parts.push_back(part_of(number, {at, std::min(most, piece.elems.elems - at)}, in_runs));
    }
  }
  const auto place = [&](const BufferPart& part) {
    if (!recipe(part).reads()) { return std::tuple{true, std::size_t{0}, std::uint64_t{0}}; }
    const FileArray array = array_of(recipe(part).from.tensor);
    return std::tuple{false, array.file, array.at(part.own.elems.first)};
  };
  std::ranges::sort(parts, {}, place);
  for (const BufferPart& part : parts) {
    const TensorRecipe& from = recipe(part);
    const FileArray own = from.reads() ? array_of(from.from.tensor) : FileArray{};
    const FileArray beside = from.beside ? array_of(from.beside->tensor) : FileArray{};
    buffer_plan_.add(part, from.reads() ? &own : nullptr, from.beside ? &beside : nullptr);
  }
}

BufferPart ShareLoader::part_of(std::size_t number, const Range& elems, bool in_runs) const {
  BufferPart part{.piece = number, .elems = elems};
  const StateTensorInfo& target = info(part);
  const TensorRecipe& from = recipe(part);
  if (from.how == How::zeros) {
    part.own.bytes = static_cast<std::size_t>(elems.elems) * engine::bytes_of(target.format);
    return part;
  }
  part.in_runs = in_runs;
  part.grows = from.how == How::copy && !in_runs;
  Range& own = part.own.elems;
  piece(part).for_each_run(
      {elems.first, 1}, [&](const Range& whole, std::int64_t /*at*/) { own.first = whole.first; });
  own.elems = elems.elems;
  if (target.kind == StateKind::scales && from.how == How::convert) {
    own.first *= kMomentBlock;
    own.elems = std::min(own.elems * kMomentBlock, target.parameter->shape.elems() - own.first);
  }
  if (in_runs) { own.elems = elems_of(runs_of(part)); }
  part.own.bytes = static_cast<std::size_t>(own.elems) * size_of_source(from.from.tensor);
  if (!from.beside) { return part; }
  const std::int64_t block = block_beside(target);
  Range& beside = part.beside.elems;
  beside.first = own.first / block;
  beside.elems = ceil_div(own.end(), block) - beside.first;
  if (in_runs) { beside.elems = elems_of(runs_beside(part)); }
  part.beside.bytes = static_cast<std::size_t>(beside.elems) * size_of_source(from.beside->tensor);
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
std::vector<FileRun> ShareLoader::runs_of(const BufferPart& part) const {
  const StateTensorInfo& target = info(part);
  const bool blocks = target.kind == StateKind::scales && recipe(part).how == How::convert;
  const std::int64_t each = blocks ? kMomentBlock : 1;
  const std::int64_t elems = blocks ? target.parameter->shape.elems() : target.elems;
  std::vector<FileRun> runs;
  piece(part).for_each_run(part.elems, [&](const Range& whole, std::int64_t) {
    const std::int64_t end = std::min(whole.end() * each, elems);
    for (std::int64_t at = whole.first * each; at < end; at += kMostRunElems) {
      runs.push_back({{at, std::min(kMostRunElems, end - at)}, at});
    }
  });
  return runs;
}

/// The elements of `beside` for each of those runs. A scale whose block begins in another run is
/// summed there.
std::vector<FileRun> ShareLoader::runs_beside(const BufferPart& part) const {
  const std::int64_t block = block_beside(info(part));
  std::vector<FileRun> runs;
  for (const FileRun& run : runs_of(part)) {
    const std::int64_t first = run.elems.first / block;
    const std::int64_t end = ceil_div(run.elems.end(), block);
    runs.push_back({{first, end - first}, ceil_div(run.elems.first, block)});
  }
  return runs;
}

void ShareLoader::take_memory() {
  std::size_t bytes = 0;
  std::int64_t elems = 0;
  for (const BufferRound& round : rounds()) {
    bytes = std::max(bytes, round.end);
    for (const BufferPart& part : round.parts) {
      if (recipe(part).how == How::convert) { elems = std::max(elems, part.own.elems.elems); }
    }
  }
  // One contiguous allocation: disks read much faster into large pages of memory than into small
  // ones.
  stride_ = page_after(bytes);
  const std::size_t count = std::min(rounds().size(), kBuffers);
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
    ahead_.emplace(rounds().size(), kBuffers, kReaders,
                   [this](std::size_t round, std::size_t reader) { fill(round, reader); });
  }
  while (ahead_->next() < rounds().size()) {
    if (!ahead_->wait_until(end)) { return false; }
    const std::size_t round = ahead_->next();
    for (const BufferPart& part : rounds()[round].parts) { write(part, buffer_of(round)); }
    ahead_->release();
    if (ReadAhead::Clock::now() >= end) { break; }
  }
  if (ahead_->next() < rounds().size()) { return false; }
  for (SumTable& read : sums_) { sums.add(std::exchange(read, {})); }
  return true;
}

/// Reads and sums a round, beside other threads.
void ShareLoader::fill(std::size_t number, std::size_t reader) {
  const BufferRound& round = rounds()[number];
  std::byte* const buffer = buffer_of(number);
  for (const BufferRun& run : round.runs) { read(run, buffer + run.at); }
  for (const BufferPart& part : round.parts) {
    if (recipe(part).how == How::zeros) {
      std::memset(buffer + part.own.at, 0, part.own.bytes);
    } else if (part.in_runs) {
      fill_runs(part, buffer, sums_[reader]);
    } else {
      sum(part, buffer, sums_[reader]);
    }
  }
}

void ShareLoader::fill_runs(const BufferPart& part, std::byte* buffer, SumTable& sums) const {
  const auto read = [&](const TensorSource& from, const std::vector<FileRun>& runs,
                        std::size_t at) {
    const FileTensor tensor{.source = source_,
                            .number = from.tensor,
                            .elem_bytes = size_of_source(from.tensor),
                            .summed = from.summed};
    read_runs(tensor, runs, buffer + at, sums);
  };
  read(recipe(part).from, runs_of(part), part.own.at);
  if (recipe(part).beside) { read(*recipe(part).beside, runs_beside(part), part.beside.at); }
}

/// Reads whole pages where that bypasses the system's cache: edges through the cache cost more.
void ShareLoader::read(const BufferRun& run, std::byte* to) {
  const std::string& file = *files_[run.file];
  if (run.bytes < kLeastPastCache) { return source_.read(file, run.first, {to, run.bytes}); }
  const std::size_t before = run.first % kFilePage;
  const std::uint64_t end =
      std::min(page_after(run.end_in_file()), source_.manifest().files.at(file));
  source_.read(file, run.first - before, {to - before, end - (run.first - before)});
}

void ShareLoader::sum(const BufferPart& part, const std::byte* buffer, SumTable& sums) const {
  const TensorRecipe& from = recipe(part);
  sum(from.from, part.own.elems, buffer + part.own.at, sums);
  if (!from.beside) { return; }
  // A scale whose block begins in another piece is summed there.
  const std::int64_t skipped = part.own.elems.first % block_beside(info(part)) != 0 ? 1 : 0;
  const Range beside = part.beside.elems;
  sum(*from.beside, {beside.first + skipped, beside.elems - skipped},
      buffer + part.beside.at +
          static_cast<std::size_t>(skipped) * size_of_source(from.beside->tensor),
      sums);
}

void ShareLoader::sum(const TensorSource& from, const Range& elems, const std::byte* bytes,
                      SumTable& sums) const {
  const ManifestTensor& tensor = listed(from.tensor);
  if (!from.summed || tensor.sums.empty() || elems.elems <= 0) { return; }
  const std::size_t size = size_of_source(from.tensor);
  sums.add(from.tensor, tensor.bytes, tensor.chunk_bytes,
           static_cast<std::uint64_t>(elems.first) * size,
           {bytes, static_cast<std::size_t>(elems.elems) * size});
}

void ShareLoader::write(const BufferPart& part, const std::byte* buffer) {
  if (recipe(part).how != How::convert) {
    return state_.write(piece(part), part.elems.first, part.elems.elems, buffer + part.own.at);
  }
  decode(part, buffer, values_.floats());
  state_.write(piece(part), part.elems.first, part.elems.elems, encode(part, values_.floats()));
}

void ShareLoader::decode(const BufferPart& part, const std::byte* buffer, float* values) const {
  const void* const from = buffer + part.own.at;
  const void* const beside = buffer + part.beside.at;
  const std::string& dtype = listed(recipe(part).from.tensor).dtype;
  const std::int64_t elems = part.own.elems.elems;
  if (!recipe(part).beside) { return kernels::widen(values, {from, *dtype_named(dtype)}, elems); }
  if (dtype == "U8") { return dequantise(part, buffer, values); }
  kernels::join_masters(values, static_cast<const bfloat16*>(from),
                        static_cast<const std::uint16_t*>(beside), elems);
}

void ShareLoader::dequantise(const BufferPart& part, const std::byte* buffer, float* values) const {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(buffer + part.own.at);
  const auto* scales = reinterpret_cast<const float*>(buffer + part.beside.at);
  const auto decode = [&](const Range& run, std::int64_t count) {
    dequantise_moment(info(part).index, run.first % kMomentBlock,
                      array_at<std::uint8_t>(codes, run.elems), array_at<float>(scales, count),
                      array_at<float>(values, run.elems));
    codes += run.elems;
    scales += count;
    values += run.elems;
  };
  if (!part.in_runs) {
    return decode({part.own.elems.first, part.own.elems.elems}, part.beside.elems.elems);
  }
  const std::vector<FileRun> beside = runs_beside(part);
  for (std::size_t i = 0; const FileRun& run : runs_of(part)) {
    decode(run.elems, beside[i++].elems.elems);
  }
}

const void* ShareLoader::encode(const BufferPart& part, const float* values) {
  const StateTensorInfo& target = info(part);
  void* const to = encoded_.data();
  const std::int64_t elems = part.own.elems.elems;
  switch (target.kind) {
    case StateKind::remainder:
      kernels::store_part({to, DType::bf16}, kernels::MasterPart::remainder, values, elems);
      return to;
    case StateKind::scales:
      quantise_moment(target.index, array_at<float>(values, elems), {},
                      array_at<float>(to, part.elems.elems));
      return to;
    default:
      break;
  }
  const bool moment = target.kind == StateKind::moment;
  if (target.format == StateFormat::bf16 || target.format == StateFormat::fp16) {
    require_range(listed(recipe(part).from.tensor).name, array_at<float>(values, elems),
                  target.kind, target.format == StateFormat::bf16 ? DType::bf16 : DType::fp16,
                  part.own.elems.first);
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

}  // namespace tessera::checkpoint
