#include "checkpoint/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "base/kept_path.hpp"
#include "checkpoint/joined_parts.hpp"
#include "checkpoint/manifest_contents.hpp"
#include "checkpoint/partial_folder.hpp"
#include "checkpoint/readable_file.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/folders.hpp"
#include "tessera/checkpoint/reader.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<CheckpointStore::Entry> entries_in(const fs::path& folder, StepKind kind) {
  std::vector<CheckpointStore::Entry> entries;
  std::string last;
  for (const StepFolder& step : steps_in(folder, kind)) {
    const fs::path path = step.path_in(folder);
    if (!is_file(path / claim_of(step.name))) { continue; }
    if (step.name == last) { entries.pop_back(); }  // replaced by this one
    entries.push_back({step.step, path});
    last = step.name;
  }
  return entries;
}

/// The manifest of the checkpoint or part in `folder`; empty if there is none that can be read.
std::optional<Manifest> manifest_at(const fs::path& folder) {
  const fs::path whole = folder / kManifestName;
  try {
    if (is_file(folder / kPartName)) { return read_part(folder).part.manifest; }
    if (!is_file(whole)) { return {}; }
    return parse_manifest(whole.string(), read_text(whole, kMostManifestBytes));
  } catch (const FormatError&) { return {}; }  // damaged: it may be replaced
}

/// Whether a resume may take the checkpoint or part in `folder`. If not, it is damaged.
bool can_be_opened(const fs::path& folder) {
  try {
    if (is_file(folder / kPartName)) { return read_part(folder).part.parts > 0; }
    return CheckpointReader{folder}.manifest().step >= 0;
  } catch (const FormatError&) { return false; }
}

/// The names and shapes of the weights.
std::set<std::pair<std::string, std::string>> weights_of(const Manifest& manifest) {
  std::set<std::pair<std::string, std::string>> weights;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.role == "weight") { weights.emplace(tensor.name, tensor.shape.to_string()); }
  }
  return weights;
}

/// The entries that `keep` does not keep. The newest is kept.
std::vector<CheckpointStore::Entry> old_ones(const std::vector<CheckpointStore::Entry>& entries,
                                             const Retention& keep) {
  expects(keep.last >= 0 && keep.every >= 0, "CheckpointStore: retain takes numbers of 0 or more");
  std::set<std::int64_t> newer;
  std::vector<CheckpointStore::Entry> old;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    newer.insert(entry->step);
    const bool is_last = keep.last == 0 || std::cmp_less_equal(newer.size(), keep.last);
    const bool is_kept = keep.every > 0 && entry->step % keep.every == 0;
    if (!is_last && !is_kept) { old.push_back(*entry); }
  }
  return old;
}

}  // namespace

CheckpointStore::CheckpointStore(const fs::path& folder, FileSystem& files)
    : folder_{kept_path(folder)}, files_{files} {
  expects(!folder_.empty(), "checkpoint: the folder's name is empty");
}

std::vector<CheckpointStore::Entry> CheckpointStore::list() const {
  return entries_in(folder_, StepKind::whole);
}

std::vector<CheckpointStore::Entry> CheckpointStore::list_parts() const {
  return entries_in(folder_, StepKind::part);
}

fs::path CheckpointStore::begin(std::int64_t step) {
  expects(step >= 0, "CheckpointStore: the step must be 0 or more");
  return begin_as(step_name(step));
}

fs::path CheckpointStore::begin_part(std::int64_t step, int part) {
  expects(step >= 0 && part >= 0, "CheckpointStore: step and part must be 0 or more");
  return begin_as(part_name(step, part));
}

fs::path CheckpointStore::begin_as(const std::string& name) {
  claim_.reset();  // leftovers of this object's earlier save count as dead
  make_run_folder();
  clean_up();
  check_target(name);
  name_ = name;
  constexpr int attempts = 16;
  for (int attempt = 0; attempt < attempts && !claim_; ++attempt) {
    partial_ = folder_ / hidden_name(name, kPartialEnd);
    files_.make_folder(partial_);
    try {
      claim_ = files_.claim(partial_ / claim_of(name));
    } catch (const Error&) {
      remove_if_possible(partial_);
      throw;
    }
  }
  if (claim_) { return partial_; }
  throw Error(
      fmt::format("cannot save to {}: other processes remove the folders that it makes; save to a "
                  "folder of your own",
                  folder_.string()));
}

/// Flushes the folders that it makes: with one of them, everything saved in it would be lost.
void CheckpointStore::make_run_folder() {
  std::vector<fs::path> missing;
  for (fs::path path = folder_; !path.empty() && !name_is_taken(path); path = path.parent_path()) {
    if (path.has_filename()) { missing.push_back(path); }
  }
  for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
    files_.make_folder(*path);
    files_.flush_folder(path->has_parent_path() ? path->parent_path() : ".");
  }
  if (missing.empty()) { files_.make_folder(folder_); }  // throws if it is not a folder
}

/// A damaged checkpoint may be replaced, a user's own folder may not.
void CheckpointStore::check_target(const std::string& name) const {
  const fs::path path = folder_ / name;
  std::error_code ignored;
  const bool is_checkpoint = is_file(path / claim_of(name)) || is_file(path / kProvenanceName);
  if (!name_is_taken(path) || is_checkpoint || fs::is_empty(path, ignored)) { return; }
  throw Error(
      fmt::format("cannot save to {}: the existing folder is not a checkpoint, as it has neither "
                  "{} nor {}; remove it, or save to another folder",
                  path.string(), claim_of(name), kProvenanceName));
}

void CheckpointStore::require_no_later(std::int64_t step) const {
  for (const std::vector<Entry>& entries : {list(), list_parts()}) {
    const auto later = std::find_if(entries.rbegin(), entries.rend(), [&](const Entry& entry) {
      return entry.step > step && can_be_opened(entry.folder);
    });
    if (later == entries.rend()) { continue; }
    throw ConfigError(
        fmt::format("cannot save step {} to {}: it holds {} of an earlier run, and a resume would "
                    "take that for the newest checkpoint; load it before training, or save to "
                    "another folder",
                    step, folder_.string(), later->folder.filename().string()));
  }
}

/// Two models of a program need a folder each: one would replace the other's checkpoints.
void CheckpointStore::require_same_model(const Manifest& manifest) const {
  const std::optional<Manifest> former = manifest_at(folder_ / name_);
  if (!former || weights_of(*former) == weights_of(manifest)) { return; }
  throw ConfigError(
      fmt::format("cannot save to {}: the checkpoint there is of another model: its weights have "
                  "other names or "
                  "shapes; give each model a folder of its own",
                  (folder_ / name_).string()));
}

void CheckpointStore::clean_up() {
  for (const std::string& name : names_in(folder_)) {
    try {
      clean_up(name);
    } catch (const Error&) {
      // It does not prevent a save. It may belong to another user.
    }
  }
}

void CheckpointStore::clean_up(const std::string& name) {
  if (is_hidden(name, kStepPrefix, kRemovedEnd) || is_hidden(name, kWeightsName, kPartialEnd)) {
    files_.remove_all(folder_ / name);
  } else if (is_hidden(name, kStepPrefix, kPartialEnd)) {
    clean_up_partial(folder_ / name);
  } else if (const auto step = parse_step_folder(name); step && step->is_new) {
    settle(step->name);
  }
}

void CheckpointStore::clean_up_partial(const fs::path& path) {
  using Writer = PartialFolder::Writer;
  // For a folder that is not empty, the second look tells whether there is a claim.
  if (PartialFolder{path}.writer() == Writer::none && files_.remove_empty(path)) { return; }
  const PartialFolder partial{path};
  const bool lost_claim = partial.writer() == Writer::none && partial.is_own_or_old();
  if (partial.writer() == Writer::dead || lost_claim) { files_.remove_all(path); }
}

CheckpointStore::Committed CheckpointStore::commit(const fs::path& partial,
                                                   const Manifest& manifest,
                                                   const std::string& provenance) {
  expects(claim_ && partial == partial_ && name_ == step_name(manifest.step),
          "CheckpointStore: commit must end the save that this object has begun");
  check_contents((partial / kManifestName).string(), manifest);
  require_same_model(manifest);
  commit_text(format_manifest(manifest), provenance);
  return {folder_ / name_, name_newest_weights()};
}

CheckpointStore::Committed CheckpointStore::commit_part(const fs::path& partial,
                                                        const CheckpointPart& part,
                                                        const std::string& provenance) {
  expects(claim_ && partial == partial_ && name_ == part_name(part.manifest.step, part.part),
          "CheckpointStore: commit_part must end the save that this object has begun");
  check_contents((partial / kPartName).string(), part.manifest);
  require_same_model(part.manifest);
  commit_text(format_part(part), provenance);
  return {folder_ / name_, name_newest_weights()};
}

void CheckpointStore::commit_text(std::string_view text, const std::string& provenance) {
  write(partial_ / kProvenanceName, provenance);
  write(partial_ / claim_of(name_), text);
  files_.flush_folder(partial_);
  publish();
  committed_ = folder_ / name_;
  claim_.reset();
}

void CheckpointStore::write(const fs::path& path, std::string_view text) {
  const auto file = files_.open(path, text.size());
  file->write_at(0, std::as_bytes(std::span{text.data(), text.size()}));
  file->flush();
}

/// Renames the folder of the save to its final name. The checkpoint exists from the first rename
/// on.
void CheckpointStore::publish() {
  const fs::path target = folder_ / name_;
  settle(name_);
  if (!name_is_taken(target)) {
    files_.rename(partial_, target);
    files_.flush_folder(folder_);
    return;
  }
  files_.rename(partial_, target.string() + std::string{kNewEnd});
  files_.flush_folder(folder_);
  settle(name_);
}

/// Replaces NAME by NAME.new, if there is one. At least one of them exists at any time.
void CheckpointStore::settle(const std::string& name) {
  const fs::path target = folder_ / name;
  const fs::path fresh = target.string() + std::string{kNewEnd};
  const fs::path old = folder_ / hidden_name(name, kRemovedEnd);
  if (!is_file(fresh / claim_of(name))) { return; }
  const bool replaces = name_is_taken(target);
  if (replaces) { files_.rename(target, old); }
  try {
    files_.rename(fresh, target);
  } catch (const Error&) {
    // Another process has done so, and this one has moved the new folder away.
    if (replaces && !name_is_taken(fresh) && !name_is_taken(target)) { files_.rename(old, target); }
    throw;
  }
  files_.flush_folder(folder_);
  if (replaces) { remove_if_possible(old); }
}

/// The commit may be of an older step than others: of a merge, or of a run that was resumed from an
/// older one. Returns why DIR/model.safetensors is not as it should be; empty if it is.
std::string CheckpointStore::name_newest_weights() {
  try {
    const std::vector<Entry> whole = list();
    const std::vector<Entry> parts = list_parts();
    const bool in_parts =
        !parts.empty() && (whole.empty() || whole.back().step < parts.back().step);
    const fs::path weights = in_parts ? fs::path{} : whole.back().folder / kWeightsName;
    is_file(weights) ? link_weights(weights) : unlink_weights();
    return {};
  } catch (const Error& error) { return error.what(); }
}

void CheckpointStore::link_weights(const fs::path& weights) {
  const fs::path target = folder_ / kWeightsName;
  const fs::path made = folder_ / hidden_name(kWeightsName, kPartialEnd);
  if (name_is_taken(target) && !is_plain_file(target)) {
    throw Error(fmt::format("cannot replace {}: it is not a file", target.string()));
  }
  try {
    if (!files_.link(weights, made)) { copy(weights, made); }
    files_.rename(made, target);
  } catch (const Error&) {
    remove_if_possible(made);
    throw;
  }
  files_.flush_folder(folder_);
}

/// Weights of an older checkpoint would be taken for the newest ones. A user's link stays.
void CheckpointStore::unlink_weights() {
  const fs::path target = folder_ / kWeightsName;
  if (!is_plain_file(target)) { return; }
  files_.remove_all(target);
  files_.flush_folder(folder_);
}

void CheckpointStore::copy(const fs::path& from, const fs::path& to) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(from, error);
  std::ifstream in{from, std::ios::binary};
  if (error || !in) { throw Error(fmt::format("cannot read {}", from.string())); }
  const auto file = files_.open(to, bytes);
  std::vector<char> block(std::min<std::uint64_t>(kBlock, bytes));
  for (std::uint64_t first = 0; first < bytes;) {
    const std::size_t count = std::min<std::uint64_t>(block.size(), bytes - first);
    if (!in.read(block.data(), static_cast<std::streamsize>(count))) {
      throw Error(fmt::format("cannot read {}", from.string()));
    }
    file->write_at(first, std::as_bytes(std::span{block.data(), count}));
    first += count;
  }
  file->flush();
}

void CheckpointStore::abandon() noexcept {
  if (!claim_) { return; }
  remove_if_possible(partial_);
  claim_.reset();
}

void CheckpointStore::remove_if_possible(const fs::path& path) noexcept {
  try {
    files_.remove_all(path);
  } catch (const std::exception&) {
    // The next save tries again.
  }
}

/// This object's last commit, else `newest`.
const fs::path& CheckpointStore::committed_or(const Entry& newest) const {
  return committed_.empty() ? newest.folder : committed_;
}

void CheckpointStore::retain(const Retention& keep) {
  if (!has_old(keep)) { return; }
  CheckpointReader{committed_or(list().back())}.verify();
  remove_old(keep);
}

bool CheckpointStore::has_old(const Retention& keep) const {
  return !old_ones(list(), keep).empty();
}

void CheckpointStore::remove_old(const Retention& keep) {
  remove(old_ones(list(), keep));
}

void CheckpointStore::retain_parts(const Retention& keep) {
  std::vector<Entry> entries = list_parts();
  // Later ones are of a save that was killed before all machines had committed it.
  const auto committed = parse_step_folder(committed_.filename().string());
  std::erase_if(entries,
                [&](const Entry& entry) { return committed && entry.step > committed->step; });
  const std::vector<Entry> old = old_ones(entries, keep);
  if (old.empty()) { return; }
  verify_part(committed_or(entries.back()));
  remove(old);
}

/// A folder loses its name before it loses a file.
void CheckpointStore::remove(const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    if (entry.folder == committed_) { continue; }
    const std::string name = entry.folder.filename().string();
    const fs::path removed = folder_ / hidden_name(name, kRemovedEnd);
    files_.rename(entry.folder, removed);
    files_.flush_folder(folder_);
    files_.remove_all(removed);
  }
}

}  // namespace tessera::checkpoint
