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

namespace tessera::checkpoint {
namespace {

// Data that is summed and written at a time stays in a cache in between.
constexpr std::uint64_t kWrittenAtOnce = std::uint64_t{1} << 20;

// Elements of a part, a multiple of every chunk.
constexpr std::int64_t kStagedElems = std::int64_t{1} << 16;

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

/// The offset of a part in the bytes of its piece.
std::uint64_t first_byte_of(const PlannedPiece& piece, const BufferPart& part) {
  return static_cast<std::uint64_t>(part.elems.first) * piece.elem_bytes;
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
  const BufferPlan plan = plan_buffers();
  std::optional<BackgroundJob> writing;  // of the other buffer
  const auto finish_writing = [&] {
    if (!writing) { return; }
    writing->wait();
    if (const std::exception_ptr failure = writing->failure()) { std::rethrow_exception(failure); }
    writing.reset();
  };
  std::byte* before = nullptr;
  for (std::size_t next = 0; const BufferRound& round : plan.rounds()) {
    std::byte* const buffer = first_page(buffers_[next].data());
    next = 1 - next;
    TESSERA_ASSERT(round.end <= buffer_bytes_);
    fill(round, buffer);
    if (round.carried > 0) {
      std::memcpy(buffer + round.runs.front().at, before + round.carried_from, round.carried);
    }
    sum(round, buffer, writer);
    finish_writing();
    writing.emplace([this, &writer, &round, buffer] { write(round, buffer, writer); });
    before = buffer;
  }
  finish_writing();
}

// In the order of the files, so that each is written from beginning to end.
BufferPlan StagedSource::plan_buffers() const {
  const auto place_of = [&](std::size_t piece) {
    return plan_.layout().places()[plan_.pieces()[piece].tensor];
  };
  std::vector<std::size_t> order(plan_.pieces().size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t piece) {
    const TensorPlace place = place_of(piece);
    return std::pair{place.file, place.first_byte + plan_.pieces()[piece].first_byte};
  });
  BufferPlan rounds{buffer_bytes_};
  for (const std::size_t number : order) {
    const PlannedPiece& piece = plan_.pieces()[number];
    const FileArray array{place_of(number).file, place_of(number).first_byte, piece.elem_bytes};
    const auto first = static_cast<std::int64_t>(piece.first_byte / piece.elem_bytes);
    const auto elems = static_cast<std::int64_t>(piece.bytes / piece.elem_bytes);
    for (std::int64_t at = 0; at < elems; at += kStagedElems) {
      const std::int64_t count = std::min(kStagedElems, elems - at);
      rounds.add({.piece = number,
                  .elems = {at, count},
                  .in_runs = piece.cut != nullptr,
                  .grows = piece.cut == nullptr,
                  .own = {{first + at, count}, static_cast<std::size_t>(count) * piece.elem_bytes}},
                 &array);
    }
  }
  rounds.cut_at_pages();
  return rounds;
}

void StagedSource::fill(const BufferRound& round, std::byte* buffer) {
  for (const BufferPart& part : round.parts) {
    const PlannedPiece& piece = plan_.pieces()[part.piece];
    const auto* const from = static_cast<const std::byte*>(piece.data) + first_byte_of(piece, part);
    if (piece.on_host) {
      std::memcpy(buffer + part.own.at, from, part.own.bytes);
    } else {
      world_.device().copy_out(buffer + part.own.at, from, part.own.bytes, lane_.get());
    }
  }
  lane_.get().wait();
}

void StagedSource::sum(const BufferRound& round, const std::byte* buffer,
                       TensorWriter& writer) const {
  for (const BufferPart& part : round.parts) {
    const PlannedPiece& piece = plan_.pieces()[part.piece];
    if (!piece.whole_chunks) { continue; }
    piece.for_each_run(first_byte_of(piece, part), part.own.bytes,
                       [&](auto first, auto from, auto bytes) {
                         writer.sum(piece.tensor, first, {buffer + part.own.at + from, bytes});
                       });
  }
}

void StagedSource::write(const BufferRound& round, const std::byte* buffer,
                         TensorWriter& writer) const {
  for (const BufferRun& run : round.runs) {
    if (run.bytes > 0) { writer.write_in_file(run.file, run.first, {buffer + run.at, run.bytes}); }
  }
  for (const BufferPart& part : round.parts) {
    if (!part.in_runs) { continue; }
    const PlannedPiece& piece = plan_.pieces()[part.piece];
    piece.for_each_run(first_byte_of(piece, part), part.own.bytes,
                       [&](auto first, auto from, auto bytes) {
                         writer.write(piece.tensor, first, {buffer + part.own.at + from, bytes});
                       });
  }
}

}  // namespace tessera::checkpoint
