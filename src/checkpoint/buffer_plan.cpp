#include "checkpoint/buffer_plan.hpp"

#include <algorithm>
#include <utility>

#include "checkpoint/file_pages.hpp"

namespace tessera::checkpoint {
namespace {

void place_apart(BufferRound& round, BufferedElems& part) {
  part.at = page_after(round.end);
  round.end = part.at + part.bytes;
}

void place(BufferRound& round, BufferedElems& part, const FileArray& array) {
  const std::uint64_t in_file = array.at(part.elems.first);
  const bool end_to_end = !round.runs.empty() && round.runs.back().file == array.file &&
                          round.runs.back().end_in_file() == in_file &&
                          round.runs.back().end() == round.end;
  if (!end_to_end) {
    round.runs.push_back(
        {.file = array.file, .first = in_file, .at = place_alike(page_after(round.end), in_file)});
  }
  BufferRun& run = round.runs.back();
  part.at = run.end();
  run.bytes += part.bytes;
  round.end = run.end();
}

void push(std::vector<BufferPart>& parts, const BufferPart& part) {
  if (part.grows && !parts.empty()) {
    BufferPart& last = parts.back();
    const bool follows = last.grows && last.piece == part.piece &&
                         last.elems.end() == part.elems.first &&
                         last.own.at + last.own.bytes == part.own.at;
    if (follows) {
      last.elems.elems += part.elems.elems;
      last.own.elems.elems += part.own.elems.elems;
      last.own.bytes += part.own.bytes;
      return;
    }
  }
  parts.push_back(part);
}

}  // namespace

void BufferPlan::add(BufferPart part, const FileArray* own, const FileArray* beside) {
  if (!rounds_.empty() && append(rounds_.back(), part, own, beside)) { return; }
  rounds_.emplace_back();
  (void)append(rounds_.back(), part, own, beside);
}

bool BufferPlan::append(BufferRound& round, BufferPart part, const FileArray* own,
                        const FileArray* beside) const {
  const std::size_t runs = round.runs.size();
  const BufferRun last = runs == 0 ? BufferRun{} : round.runs.back();
  const std::size_t end = round.end;
  for (const auto& [bytes, array] : {std::pair{&part.own, own}, std::pair{&part.beside, beside}}) {
    if (bytes->bytes == 0) { continue; }
    array == nullptr || part.in_runs ? place_apart(round, *bytes) : place(round, *bytes, *array);
  }
  if (round.end <= most_bytes_ || round.parts.empty()) {
    push(round.parts, part);
    return true;
  }
  round.runs.resize(runs);
  if (runs > 0) { round.runs.back() = last; }
  round.end = end;
  return false;
}

void BufferPlan::cut_at_pages() {
  for (std::size_t r = 1; r < rounds_.size(); ++r) {
    std::vector<BufferRun>& before = rounds_[r - 1].runs;
    BufferRound& round = rounds_[r];
    if (before.empty() || round.runs.empty()) { continue; }
    BufferRun& last = before.back();
    BufferRun& next = round.runs.front();
    if (last.file != next.file || last.end_in_file() != next.first) { continue; }
    const std::size_t shared = std::min<std::size_t>(last.bytes, next.first % kFilePage);
    last.bytes -= shared;
    next.at -= shared;
    next.first -= shared;
    next.bytes += shared;
    round.carried = shared;
    round.carried_from = last.end();
    if (last.bytes == 0) { before.pop_back(); }
  }
}

}  // namespace tessera::checkpoint
