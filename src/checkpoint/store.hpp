#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_system.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/part.hpp"

namespace tessera::checkpoint {

/// The checkpoints to keep. An old one is removed only after a newer one was verified.
struct Retention {
  int last = 2;            ///< this many newest ones; 0: all
  std::int64_t every = 0;  ///< also those whose step is a multiple of this; 0: no others
};

/// The checkpoints of one run: a folder DIR with a folder step-00000012 for each.
///
/// A save writes into DIR/.step-00000012.NONCE.partial. All ranks write and flush the ranges of
/// files that they own; then one rank writes and flushes manifest.json, flushes the folder, renames
/// it and flushes DIR. Only then does the checkpoint exist.
///
/// A step that is saved again first becomes step-00000012.new, which is the step's checkpoint from
/// then on; the earlier one is moved away, the new one gets its name, and the earlier one is
/// removed. A save or a removal that is killed at any moment leaves the newest checkpoint whole,
/// under one of the two names.
///
/// The next save removes leftovers of killed saves; leftovers that cannot be removed stay. A lock
/// (FileClaim) on manifest.json shows that a save is alive. A folder of another machine, or on a
/// file system without locks, is left alone until it is an hour old.
///
/// Where machines share no file system, each has a DIR of its own and saves *parts*: folders
/// step-00000012.part-K with part.json instead of manifest.json (checkpoint/part.hpp).
///
/// Order:   begin, then commit or abandon, by one object. It holds the lock between them.
/// Errors:  Error with the path and the system's reason; earlier checkpoints stay.
/// Threads: one at a time.
class CheckpointStore {
 public:
  CheckpointStore(const std::filesystem::path& folder, FileSystem& files);

  /// An existing checkpoint.
  struct Entry {
    std::int64_t step = 0;
    std::filesystem::path folder;
  };
  /// Checkpoints whose manifest has the step of their name, ascending by step. Nothing is verified.
  [[nodiscard]] std::vector<Entry> list() const;
  /// The parts of this machine, in the same way. A step may have several.
  [[nodiscard]] std::vector<Entry> list_parts() const;

  /// Throws ConfigError if DIR holds a later checkpoint than `step`, or a part of one, that is not
  /// damaged: a resume would take it for the newest.
  void require_no_later(std::int64_t step) const;

  /// Called by one rank: begins a save. Makes DIR and the folder of the save, and returns the
  /// latter.
  [[nodiscard]] std::filesystem::path begin(std::int64_t step);
  /// Called by one rank of each machine: begins to save part `part`.
  [[nodiscard]] std::filesystem::path begin_part(std::int64_t step, int part);

  /// The result of a commit.
  struct Committed {
    std::filesystem::path folder;  ///< the checkpoint's folder
    /// Why DIR/model.safetensors is not the newest checkpoint's weights or, where these are several
    /// files or in parts, why it still exists; empty if all is well.
    std::string no_weights;
  };
  /// Called by one rank after all ranks have flushed what they wrote: ends the save. If the weights
  /// of the newest checkpoint in DIR are one file, they also become DIR/model.safetensors: a link
  /// if the file system has links, otherwise a copy. If they are several files or in parts, an
  /// earlier DIR/model.safetensors is removed. FormatError for contents that would not load
  /// (check_contents). ConfigError if the step exists with weights of other names or shapes: it is
  /// of another model.
  Committed commit(const std::filesystem::path& partial, const Manifest& manifest,
                   const std::string& provenance);
  Committed commit_part(const std::filesystem::path& partial, const CheckpointPart& part,
                        const std::string& provenance);
  /// Ends the save that has begun, if any, and removes its folder. No rank may write to it any
  /// more.
  void abandon() noexcept;

  /// Removes old checkpoints, after verifying this object's last commit, or the newest checkpoint
  /// (read back, sums compared). If that is damaged, throws FormatError naming the damage and
  /// removes none. This object's last commit stays, even if an earlier run left later steps.
  void retain(const Retention& keep);
  /// The same in two calls, for ranks that share the work of verifying: whether there are old ones,
  /// and their removal.
  [[nodiscard]] bool has_old(const Retention& keep) const;
  void remove_old(const Retention& keep);
  /// Removes this machine's old parts. Requires that all machines have committed their part of the
  /// newest step. Ignores and keeps parts of steps later than this object's last commit: other
  /// machines may not have committed theirs.
  void retain_parts(const Retention& keep);

 private:
  [[nodiscard]] std::filesystem::path begin_as(const std::string& name);
  void make_run_folder();
  void check_target(const std::string& name) const;
  void require_same_model(const Manifest& manifest) const;
  void clean_up();
  void clean_up(const std::string& name);
  void clean_up_partial(const std::filesystem::path& path);
  void commit_text(std::string_view text, const std::string& provenance);
  void write(const std::filesystem::path& path, std::string_view text);
  void publish();
  void settle(const std::string& name);
  [[nodiscard]] std::string name_newest_weights();
  void link_weights(const std::filesystem::path& weights);
  void unlink_weights();
  void copy(const std::filesystem::path& from, const std::filesystem::path& to);
  void remove_if_possible(const std::filesystem::path& path) noexcept;
  [[nodiscard]] const std::filesystem::path& committed_or(const Entry& newest) const;
  void remove(const std::vector<Entry>& entries);

  std::filesystem::path folder_;
  FileSystem& files_;
  // The save that has begun:
  std::string name_;                  // its folder's name once committed
  std::filesystem::path partial_;     // its folder until then
  std::unique_ptr<FileClaim> claim_;  // claim on its manifest; null if there is none

  std::filesystem::path committed_;  // last commit of this object
};

}  // namespace tessera::checkpoint
