#include "checkpoint/save_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/collective_failure.hpp"
#include "checkpoint/part_ranges.hpp"
#include "checkpoint/rank_reads.hpp"
#include "checkpoint/split_chunks.hpp"
#include "checkpoint/state_names.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/reader.hpp"

namespace tessera::checkpoint {
namespace {

bool any_of_results(const std::vector<std::string>& all) {
  return std::ranges::any_of(all, [](const auto& text) { return !result_in(text).empty(); });
}

void add_sums(Manifest& manifest, std::size_t first_tensor, const std::string& text) {
  for_each_sum(text, [&](std::size_t tensor, std::size_t block, std::uint64_t sum) {
    manifest.tensors.at(first_tensor + tensor).sums.at(block) += sum;
  });
}

void append_tensors(std::vector<PartRange>& ranges, const CheckpointLayout& layout) {
  for (const TensorPlace& place : layout.places()) {
    ranges.push_back({layout.files()[place.file].name, place.first_byte, place.bytes});
  }
}

void append_headers(std::vector<PartRange>& ranges, const CheckpointLayout& layout) {
  for (const CheckpointFile& file : layout.files()) {
    ranges.push_back({file.name, 0, file.header.size()});
  }
  for (const CheckpointLayout::Index& index : layout.indices()) {
    ranges.push_back({index.name, 0, index.text.size()});
  }
}

}  // namespace

SaveRun::SaveRun(const Parts& parts, SaveTexts texts, const CheckpointExtras& extras)
    : parts_{parts},
      texts_{std::move(texts)},
      extras_{parts.world, extras},
      place_{parts.world.size()} {
  texts_.manifest.values = extras_.values();
  if (leads()) {
    job_.emplace([this] {
      if (!parts_.beside_later) { parts_.store.require_no_later(texts_.manifest.step); }
      partial_ = parts_.store.begin(texts_.manifest.step);
    });
  }
}

/// Returns whether this rank works in this phase.
bool SaveRun::acts() const {
  return phase_ == Phase::writing || phase_ == Phase::summing || phase_ == Phase::verifying ||
         leads();
}

std::string SaveRun::report() const {
  if (!acts()) { return text_of_result(result()); }
  if (!job_ || !job_->has_ended()) { return {}; }
  const std::string failure = text_of_failure(job_->failure());
  return failure.empty() ? text_of_result(result()) : failure;
}

std::string SaveRun::result() const {
  switch (phase_) {
    case Phase::preparing:
    case Phase::dividing:
      return partial_.filename().string();
    case Phase::committing:
      return has_old_ ? "old ones" : little_room_;
    case Phase::retaining:
      return not_retained_;
    case Phase::writing:
      return parts_.plan.splits_chunks() ? "parts of chunks" : "";
    case Phase::summing:
    case Phase::verifying:
      break;
  }
  return {};
}

bool SaveRun::sees_folder() const {
  return is_file(partial_ / claim_of(in_parts() ? part_name(0, 0) : step_name(0)));
}

bool SaveRun::poll() {
  const std::vector<std::string> all = parts_.world.exchange(report());
  if (!all_have_ended(all)) { return false; }
  const std::string failure = first_failure(all);
  switch (phase_) {
    case Phase::preparing:
      if (!failure.empty()) { throw_failure(failure); }
      save_ = result_in(all.front());
      partial_ = parts_.folder / save_;
      divide(answers_in(parts_.world.exchange(answer().text())));
      return false;
    case Phase::dividing:
      failure.empty()
          ? begin_writing(result_in(all[static_cast<std::size_t>(place_.leader_of(rank()))]))
          : abandon(failure);
      return false;
    case Phase::writing:
      failure.empty() && !rehearses() && any_of_results(all) ? begin_summing()
                                                             : finish_writing(failure);
      return false;
    case Phase::summing:
      finish_writing(failure);
      return false;
    case Phase::committing:
      return finish_committing(all, failure);
    case Phase::verifying:
      finish_verifying(failure);
      return false;
    case Phase::retaining:
      throw_not_retained(all);
      return true;
  }
  return true;
}

RankAnswer SaveRun::answer() const {
  const SavePlan& plan = parts_.plan;
  return {.finds = sees_folder(),
          .balance = plan.split_balance(),
          .files = hash_of_files(plan.layout(), extras_.layout()),
          .values = hash_of_values(extras_.values()),
          .machine = parts_.files.machine()};
}

/// Returns in what some rank's save differs from rank 0's; empty if in nothing.
std::string SaveRun::difference(const std::vector<RankAnswer>& all) const {
  const auto first_other = [&](auto member) {
    const auto other = std::ranges::find_if(
        all, [&](const RankAnswer& answer) { return answer.*member != all.front().*member; });
    return other == all.end() ? 0 : other - all.begin();
  };
  if (const auto other = first_other(&RankAnswer::files); other != 0) {
    return fmt::format(
        "rank {} would write other tensors or files than rank 0; give all ranks the same buffers, "
        "the same names of parameters and the same `shard_bytes`",
        other);
  }
  if (first_other(&RankAnswer::values) == 0) { return {}; }
  return difference_in_values(parts_.world.exchange(text_of_values(extras_.values()))) +
         "; give all ranks the same values";
}

/// Decides which ranks write where.
void SaveRun::divide(const std::vector<RankAnswer>& all) {
  if (const std::string other = difference(all); !other.empty()) {
    return abandon(text_of_failure(
        std::make_exception_ptr(ContractError{fmt::format("{}: {}", parts_.call, other)})));
  }
  const auto blind = std::ranges::find(all, false, &RankAnswer::finds);
  if (blind == all.end()) { return begin_writing(save_); }
  std::vector<std::string> machines;
  for (const RankAnswer& answer : all) { machines.push_back(answer.machine); }
  const SavePlace by_machine = SavePlace::by_machine(machines);
  const std::exception_ptr refusal =
      failure_of([&] { require_place(by_machine, static_cast<int>(blind - all.begin()), all); });
  refusal ? abandon(text_of_failure(refusal)) : begin_dividing(by_machine);
}

/// Throws Error unless each machine can save a part of its own. Rank `blind` does not find the
/// folder of rank 0.
void SaveRun::require_place(const SavePlace& place, int blind,
                            const std::vector<RankAnswer>& all) const {
  if (place.leader_of(blind) == 0) {
    throw Error{fmt::format(
        "cannot save to {}: rank 0 made the folder {} there, and rank {} on the same machine does "
        "not find it; give both ranks the same folder",
        parts_.folder.string(), save_, blind)};
  }
  std::map<int, std::uint64_t> balances;  // by leader
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    balances[place.leader_of(static_cast<int>(rank))] += all[rank].balance;
  }
  if (std::ranges::all_of(balances, [](const auto& one) { return one.second == 0; })) { return; }
  throw Error{fmt::format(
      "cannot save to {}: the machines do not share this folder (rank {} does not find what rank 0 "
      "made there), and tensors are cut along `tensor` between machines: a machine cannot compute "
      "the checksum of {} elements of which it holds a part only; give all machines one shared "
      "folder, or place all ranks of a stage of `pipe` on one machine",
      parts_.folder.string(), blind, kChunkElems)};
}

void SaveRun::begin_dividing(const SavePlace& place) {
  const bool made_it = leads();
  place_ = place;
  phase_ = Phase::dividing;
  if (!leads()) { return; }
  job_.emplace([this, made_it] {
    if (made_it) { parts_.store.abandon(); }
    if (!parts_.beside_later) { parts_.store.require_no_later(texts_.manifest.step); }
    partial_ = parts_.store.begin_part(texts_.manifest.step, place_.part_of(rank()));
  });
}

void SaveRun::begin_writing(const std::string& name) {
  partial_ = parts_.folder / name;
  phase_ = Phase::writing;
  job_.emplace([this] { write(); });
}

void SaveRun::write() {
  if (!sees_folder()) {
    throw Error{
        fmt::format("rank {} does not find {}, which rank {} made on the same machine; give both "
                    "ranks the same folder",
                    rank(), partial_.string(), place_.leader_of(rank()))};
  }
  if (rehearses()) { return; }
  state_writer_.emplace(parts_.plan.layout(), partial_, parts_.files);
  extras_writer_.emplace(extras_.layout(), partial_, parts_.files);
  if (in_parts() && leads()) {
    state_writer_->make_files();
    extras_writer_->make_files();
    extras_writer_->flush();
  }
  parts_.source.write(*state_writer_);
  if (rank() == 0) {
    state_writer_->write_headers();
    extras_writer_->write_headers();
    extras_.write(*extras_writer_);
    extras_writer_->flush();
  }
  state_writer_->flush();
}

/// Ends the save. `failure`: of some rank; empty for a rehearsal without one.
void SaveRun::abandon(const std::string& failure) {
  phase_ = Phase::committing;
  failure_ = failure;
  if (leads()) {
    job_.emplace([this] {
      parts_.store.abandon();
      if (rehearses()) { little_room_ = find_little_room(); }
    });
  }
}

/// The bytes of a part are not known before it is written.
std::string SaveRun::find_little_room() const {
  const std::optional<std::uint64_t> free = parts_.files.free_bytes(parts_.folder);
  std::uint64_t needed = 0;
  for (const CheckpointFile& file : parts_.plan.layout().files()) { needed += file.bytes; }
  if (in_parts() || !free || *free >= needed) { return {}; }
  return fmt::format(
      "{} has {} of free space, less than the {} of a checkpoint; free some space before the first "
      "save, or save to another folder",
      parts_.folder.string(), format_bytes(*free), format_bytes(needed));
}

/// Chunks that several ranks wrote parts of are complete now.
void SaveRun::begin_summing() {
  phase_ = Phase::summing;
  job_.emplace([this] { sum_split_chunks(parts_.plan, partial_, *state_writer_); });
}

void SaveRun::finish_writing(const std::string& failure) {
  if (!failure.empty() || rehearses()) { return abandon(failure); }
  phase_ = Phase::committing;
  const std::vector<std::string> sums = parts_.world.exchange(state_writer_->sums());
  std::vector<std::string> written;
  if (in_parts()) { written = parts_.world.exchange(text_of(ranges())); }
  if (leads()) {
    job_.emplace([this, sums, written] { commit(sums, written); });
  }
}

/// Returns the ranges that this rank wrote.
std::vector<PartRange> SaveRun::ranges() const {
  const CheckpointLayout& layout = parts_.plan.layout();
  std::vector<PartRange> ranges;
  for (const PlannedPiece& piece : parts_.plan.pieces()) {
    const TensorPlace& place = layout.places()[piece.tensor];
    piece.for_each_run(0, piece.bytes, [&](auto first, auto /*at*/, auto bytes) {
      ranges.push_back({layout.files()[place.file].name, place.first_byte + first, bytes});
    });
  }
  if (rank() == 0) {
    append_headers(ranges, layout);
    append_headers(ranges, extras_.layout());
    append_tensors(ranges, extras_.layout());
  }
  return merged(std::move(ranges));
}

/// Returns the manifest with the sums of the ranks that write into this rank's folder.
Manifest SaveRun::joined(const std::vector<std::string>& sums) const {
  Manifest manifest = texts_.manifest;
  list_in(manifest, parts_.plan.layout(), parts_.plan.roles());
  const std::size_t state_tensors = manifest.tensors.size();
  list_in(manifest, extras_.layout(),
          std::vector<std::string>(extras_.layout().tensors().size(), "extra"));
  for (ManifestTensor& tensor : manifest.tensors) {
    tensor.sums = TensorSums{tensor.bytes, tensor.chunk_bytes}.sums();
  }
  for (int other = 0; other < parts_.world.size(); ++other) {
    if (place_.leader_of(other) != rank()) { continue; }
    add_sums(manifest, 0, sums[static_cast<std::size_t>(other)]);
  }
  if (rank() == 0) { add_sums(manifest, state_tensors, extras_writer_->sums()); }
  return manifest;
}

void SaveRun::keep(CheckpointStore::Committed committed) {
  folder_ = std::move(committed.folder);
  no_weights_ = std::move(committed.no_weights);
}

void SaveRun::commit(const std::vector<std::string>& sums,
                     const std::vector<std::string>& written) {
  try {
    if (!in_parts()) {
      keep(parts_.store.commit(partial_, joined(sums), texts_.provenance));
    } else {
      std::vector<PartRange> all;
      for (int other = 0; other < parts_.world.size(); ++other) {
        if (place_.leader_of(other) != rank()) { continue; }
        std::ranges::move(ranges_of(written[static_cast<std::size_t>(other)]),
                          std::back_inserter(all));
      }
      const CheckpointPart part{.save = save_,
                                .part = place_.part_of(rank()),
                                .parts = place_.parts(),
                                .ranges = merged(std::move(all)),
                                .manifest = joined(sums)};
      keep(parts_.store.commit_part(partial_, part, texts_.provenance));
    }
  } catch (...) {
    parts_.store.abandon();
    throw;
  }
  if (!parts_.keep || in_parts()) { return; }
  try {
    has_old_ = parts_.store.has_old(*parts_.keep);
  } catch (const Error&) { has_old_ = true; }  // reported when they are to be removed
}

std::string SaveRun::not_removed(const std::string& failure) const {
  return failure.substr(0, 1) +
         fmt::format("{} is saved, but older checkpoints were not removed: {}", folder_.string(),
                     failure.substr(1));
}

/// Keeps a failure of `remove_old` separate: the save is valid whether or not old checkpoints are
/// removed.
void SaveRun::begin_retaining(const std::function<void()>& remove_old) {
  phase_ = Phase::retaining;
  if (!leads()) { return; }
  job_.emplace([this, remove_old] {
    try {
      remove_old();
    } catch (...) { not_retained_ = not_removed(text_of_failure(std::current_exception())); }
  });
}

void SaveRun::throw_not_retained(const std::vector<std::string>& all) {
  for (const std::string& text : all) {
    const std::string not_retained = result_in(text);
    if (!not_retained.empty()) { throw_failure(not_retained); }
  }
}

bool SaveRun::finish_committing(const std::vector<std::string>& all, const std::string& failure) {
  if (!failure_.empty()) { throw_failure(failure_); }
  if (!failure.empty()) { throw_failure(failure); }
  if (rehearses()) {
    little_room_ = result_in(all.front());
    return true;
  }
  const std::int64_t step = texts_.manifest.step;
  folder_ =
      parts_.folder / (in_parts() ? part_name(step, place_.part_of(rank())) : step_name(step));
  // Each machine that keeps a part has a model.safetensors of its own.
  const std::vector<std::string> warnings = parts_.world.exchange(no_weights_);
  const auto any = std::ranges::find_if_not(warnings, &std::string::empty);
  no_weights_ = any == warnings.end() ? std::string{} : *any;
  committed_ = true;
  if (in_parts() && parts_.keep) {
    begin_retaining([this] { parts_.store.retain_parts(*parts_.keep); });
    return false;
  }
  if (result_in(all.front()).empty()) { return true; }
  phase_ = Phase::verifying;
  job_.emplace([this] {
    const CheckpointReader saved{folder_};
    RankReads{saved}.verify_part_of(static_cast<std::size_t>(rank()),
                                    static_cast<std::size_t>(parts_.world.size()));
  });
  return false;
}

void SaveRun::finish_verifying(const std::string& failure) {
  if (!failure.empty()) { throw_failure(not_removed(failure)); }
  begin_retaining([this] { parts_.store.remove_old(*parts_.keep); });
}

void SaveRun::wait(std::chrono::milliseconds longest) const {
  if (job_) { job_->wait(longest); }
}

}  // namespace tessera::checkpoint
