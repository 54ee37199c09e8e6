#include "checkpoint/share_source.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "checkpoint/background_job.hpp"
#include "checkpoint/file_pages.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

// Data that is summed and written at a time stays in a cache in between.
constexpr std::uint64_t kWrittenAtOnce = std::uint64_t{1} << 20;

/// The offset of each piece's copy in a snapshot, followed by the end of the last one.
std::vector<std::size_t> snapshot_places(const SavePlan& plan) {
  std::vector<std::size_t> places;
  std::size_t used = 0;
  for (const PlannedPiece& piece : plan.pieces()) {
    const std::uint64_t in_file =
        plan.layout().places()[piece.tensor].first_byte + piece.first_byte;
    places.push_back(piece.bytes < kLeastPastCache ? used : place_alike(used, in_file));
    used = (places.back() + piece.bytes + Device::kAlignment - 1) / Device::kAlignment *
           Device::kAlignment;
  }
  places.push_back(used);
  return places;
}

// Equal on all ranks, whatever their shares are: it is planned for one of them.
std::size_t snapshot_bytes(const engine::TrainingState& state) {
  const std::size_t bytes = state.most_share_bytes(kFilePage + Device::kAlignment);
  return bytes == 0 ? 0 : bytes + kFilePage;
}

std::size_t staged_bytes(const engine::TrainingState& state) {
  return std::min(StagedSource::kMostBytes, state.most_share_bytes(3 * kFilePage));
}

}  // namespace

SnapshotSource::SnapshotSource(World& world, engine::TrainingState& state, const SavePlan& plan)
    : state_{state}, plan_{plan} {
  const std::vector<std::size_t> places = snapshot_places(plan);
  const std::size_t bytes = snapshot_bytes(state);
  TESSERA_ASSERT(places.back() == 0 || places.back() + kFilePage <= bytes);
  memory_ = world.allocate_host(Category::workspace, bytes, "checkpoint");
  std::byte* const base = first_page(memory_.data());
  first_piece_.assign(plan.units() + 1, 0);
  for (std::size_t i = 0; i < plan.pieces().size(); ++i) {
    copies_.push_back(base + places[i]);
    ++first_piece_[plan.pieces()[i].unit + 1];
  }
  std::partial_sum(first_piece_.begin(), first_piece_.end(), first_piece_.begin());
  for (std::size_t unit = 0; unit < plan.units(); ++unit) {
    copied_.push_back(world.device().make_event());
  }
}

void SnapshotSource::begin() {
  for (std::size_t unit = 0; unit < plan_.units(); ++unit) {
    const std::span<void* const> to =
        std::span{copies_}.subspan(first_piece_[unit], first_piece_[unit + 1] - first_piece_[unit]);
    state_.copy_out(unit, to, copied_[unit].get());
  }
}

void SnapshotSource::write(TensorWriter& writer) {
  for (std::size_t unit = 0; unit < plan_.units(); ++unit) {
    copied_[unit].get().wait();
    for (std::size_t i = first_piece_[unit]; i < first_piece_[unit + 1]; ++i) {
      const PlannedPiece& piece = plan_.pieces()[i];
      const auto* const copy = static_cast<const std::byte*>(copies_[i]);
      piece.for_each_run(0, piece.bytes, [&](auto first, auto from, auto count) {
        for (std::uint64_t at = 0; at < count; at += kWrittenAtOnce) {
          const std::span bytes{copy + from + at, std::min(kWrittenAtOnce, count - at)};
          if (piece.whole_chunks) { writer.sum(piece.tensor, first + at, bytes); }
          writer.write(piece.tensor, first + at, bytes);
        }
      });
    }
  }
}

StagedSource::StagedSource(World& world, engine::TrainingState& state, const SavePlan& plan)
    : world_{world},
      state_{state},
      plan_{plan},
      buffer_bytes_{staged_bytes(state)},
      lane_{world.device().make_side_stream("checkpoint")} {
  for (Buffer& buffer : buffers_) {
    const std::size_t bytes = buffer_bytes_ == 0 ? 0 : buffer_bytes_ + kFilePage;
    buffer = world.allocate_host(Category::workspace, bytes, "checkpoint");
  }
}

void StagedSource::begin() {
  state_.begin_write();  // enqueued work no longer changes it
}

void StagedSource::write(TensorWriter& writer) {
  std::optional<BackgroundJob> writing;  // of the other buffer
  const auto finish_writing = [&] {
    if (!writing) { return; }
    writing->wait();
    if (const std::exception_ptr failure = writing->failure()) { std::rethrow_exception(failure); }
    writing.reset();
  };
  std::size_t next = 0;
  for (const Round& parts : rounds()) {
    std::byte* const buffer = first_page(buffers_[next].data());
    next = 1 - next;
    fill(parts, buffer);
    for (const Part& part : parts) {
      if (part.summed_bytes == 0) { continue; }
      part.piece->for_each_run(
          part.first_byte, part.summed_bytes, [&](auto first, auto from, auto bytes) {
            writer.sum(part.piece->tensor, first, {buffer + part.at + from, bytes});
          });
    }
    finish_writing();
    writing.emplace([&writer, parts, buffer] { write(parts, buffer, writer); });
  }
  finish_writing();
}

// In the order of the files, so that each is written from beginning to end.
std::vector<StagedSource::Round> StagedSource::rounds() const {
  std::vector<const PlannedPiece*> order;
  for (const PlannedPiece& piece : plan_.pieces()) { order.push_back(&piece); }
  std::ranges::sort(order, {}, [&](const PlannedPiece* piece) {
    const TensorPlace& place = plan_.layout().places()[piece->tensor];
    return std::pair{place.file, place.first_byte + piece->first_byte};
  });
  std::vector<Round> rounds;
  for (const PlannedPiece* const piece : order) {
    for (std::uint64_t written = 0; written < piece->bytes;) {
      if (rounds.empty() || !append(rounds.back(), *piece, written)) { rounds.emplace_back(); }
    }
  }
  return rounds;
}

// Appends as much of the piece as there is room for, from byte `written` on. Returns false if there
// is no room.
bool StagedSource::append(Round& round, const PlannedPiece& piece, std::uint64_t& written) const {
  if (piece.cut != nullptr) { return append_runs(round, piece, written); }
  const TensorPlace& place = plan_.layout().places()[piece.tensor];
  const std::uint64_t chunk = chunk_of(piece);
  Part part{.piece = &piece,
            .first_byte = written / chunk * chunk,
            .unwritten = written % chunk,
            .file = place.file,
            .first_in_file = place.first_byte + piece.first_byte + written};
  const bool end_to_end = !round.empty() && round.back().piece->cut == nullptr &&
                          part.unwritten == 0 && round.back().file == part.file &&
                          round.back().end_in_file() == part.first_in_file;
  const std::size_t used = round.empty() ? 0 : round.back().end();
  const std::size_t at = end_to_end ? used : place_alike(used + part.unwritten, part.first_in_file);
  if (at >= buffer_bytes_) { return false; }
  const std::uint64_t left = piece.bytes - written;
  const std::uint64_t some = std::min<std::uint64_t>(left, buffer_bytes_ - at);
  part.at = at - part.unwritten;
  part.bytes = part.unwritten + some;
  part.summed_bytes = some == left ? part.bytes : part.bytes / chunk * chunk;
  if (!piece.whole_chunks) { part.summed_bytes = 0; }
  written += some;
  round.push_back(part);
  return true;
}

// The same for a piece that lies in several runs in the file. Each of them ends within a buffer or
// at a chunk.
bool StagedSource::append_runs(Round& round, const PlannedPiece& piece,
                               std::uint64_t& written) const {
  const std::uint64_t chunk = chunk_of(piece);
  const std::size_t at = round.empty() ? 0 : page_after(round.back().end());
  if (at + chunk > buffer_bytes_) { return false; }
  Part part{.piece = &piece, .first_byte = written, .at = at};
  part.bytes = std::min<std::uint64_t>(piece.bytes - written, (buffer_bytes_ - at) / chunk * chunk);
  part.summed_bytes = piece.whole_chunks ? part.bytes : 0;
  written += part.bytes;
  round.push_back(part);
  return true;
}

// Data that is not summed while it is written may be split at any element.
std::uint64_t StagedSource::chunk_of(const PlannedPiece& piece) const {
  return piece.whole_chunks ? plan_.layout().tensors()[piece.tensor].chunk_bytes : piece.elem_bytes;
}

void StagedSource::fill(const Round& parts, std::byte* buffer) {
  for (const Part& part : parts) {
    const auto* const from = static_cast<const std::byte*>(part.piece->data) + part.first_byte;
    if (part.piece->on_host) {
      std::memcpy(buffer + part.at, from, part.bytes);
    } else {
      world_.device().copy_out(buffer + part.at, from, part.bytes, lane_.get());
    }
  }
  lane_.get().wait();
}

// Bytes that are contiguous both in the file and in the buffer are written at once.
void StagedSource::write(const Round& parts, const std::byte* buffer, TensorWriter& writer) {
  for (std::size_t first = 0; first < parts.size();) {
    if (const Part& part = parts[first]; part.piece->cut != nullptr) {
      part.piece->for_each_run(part.first_byte, part.bytes, [&](auto at, auto from, auto bytes) {
        writer.write(part.piece->tensor, at, {buffer + part.at + from, bytes});
      });
      ++first;
      continue;
    }
    const std::byte* const from = buffer + parts[first].at + parts[first].unwritten;
    std::size_t last = first;
    while (last + 1 < parts.size() && parts[last + 1].piece->cut == nullptr &&
           parts[last + 1].at == parts[last].end() && parts[last + 1].unwritten == 0 &&
           parts[last + 1].file == parts[first].file &&
           parts[last + 1].first_in_file == parts[last].end_in_file()) {
      ++last;
    }
    writer.write_in_file(
        parts[first].file, parts[first].first_in_file,
        {from, static_cast<std::size_t>(parts[last].end_in_file() - parts[first].first_in_file)});
    first = last + 1;
  }
}

}  // namespace tessera
