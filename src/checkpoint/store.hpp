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

namespace tessera {

/// Which checkpoints stay. An old one goes only after a newer one has been verified.
struct Retention {
  int last = 2;            ///< the newest ones; 0: all
  std::int64_t every = 0;  ///< and those whose step is a multiple of this; 0: no more
};

/// The checkpoints of one run: a folder DIR with a folder step-00000012 for each.
///
/// A save writes into DIR/.step-00000012.NONCE.partial: all ranks the ranges of files that they
/// own, each of which they flush; then one rank writes and flushes manifest.json, flushes the
/// folder, renames it to its name and flushes DIR. Only then it is there.
///
/// A step that is saved again becomes step-00000012.new first, which counts as the step's
/// checkpoint from then on; the earlier one is moved away, the new one gets its name, and the
/// earlier one is removed. A save or a removal that is killed at any moment leaves the newest
/// checkpoint whole, under one of the two names.
///
/// What killed saves have left is removed when the next save begins; what cannot be removed stays.
/// A save that lives is told by the lock (FileClaim) on its manifest.json. A folder of another
/// machine, or on a file system without locks, is left alone until it is an hour old.
///
/// Where machines share no file system, each has a DIR of its own and saves *parts*: folders
/// step-00000012.part-K with part.json in place of manifest.json (checkpoint/part.hpp).
///
/// Order:   begin, then commit or abandon, by one object. It holds the lock between them.
/// Errors:  Error with the path and the system's reason; what was there stays.
/// Threads: one at a time.
class CheckpointStore {
 public:
  CheckpointStore(std::filesystem::path folder, FileSystem& files);

  /// One that is there.
  struct Entry {
    std::int64_t step = 0;
    std::filesystem::path folder;
  };
  /// Those with a manifest of their name, ascending by step. Nothing is verified.
  [[nodiscard]] std::vector<Entry> list() const;
  /// Likewise, the parts of this machine. A step may have several.
  [[nodiscard]] std::vector<Entry> list_parts() const;

  /// One rank begins a save: makes DIR and the folder of the save, and returns it.
  [[nodiscard]] std::filesystem::path begin(std::int64_t step);
  /// One rank of a machine begins to save part `part`.
  [[nodiscard]] std::filesystem::path begin_part(std::int64_t step, int part);

  /// What a commit has done.
  struct Committed {
    std::filesystem::path folder;  ///< the checkpoint's
    /// Why DIR/model.safetensors is not the checkpoint's weights, or, where weights are several
    /// files, why it is still there; empty if all is well, and for a part.
    std::string no_weights;
  };
  /// One rank ends the save, after all ranks have flushed what they wrote. Weights that are one
  /// file become DIR/model.safetensors as well: a link where there are links, else a copy. Where
  /// they are several, an earlier one's is removed.
  Committed commit(const std::filesystem::path& partial, const Manifest& manifest,
                   const std::string& provenance);
  Committed commit_part(const std::filesystem::path& partial, const CheckpointPart& part,
                        const std::string& provenance);
  /// Ends the save that has begun, if any, and removes its folder. No rank writes to it any more.
  void abandon() noexcept;

  /// Removes old ones, after verifying what this object has committed last, or the newest (read
  /// back, sums compared). FormatError that names what is damaged if it is; then none is removed.
  /// What this object has committed last stays, even if later steps of an earlier run are there.
  void retain(const Retention& keep);
  /// The same in two calls, for ranks that share the work of verifying: whether there are old ones,
  /// and their removal.
  [[nodiscard]] bool has_old(const Retention& keep) const;
  void remove_old(const Retention& keep);
  /// Removes this machine's old parts. All machines have committed their part of the newest step.
  void retain_parts(const Retention& keep);

 private:
  [[nodiscard]] std::filesystem::path begin_as(const std::string& name);
  void make_run_folder();
  void check_target(const std::string& name) const;
  void clean_up();
  void clean_up(const std::string& name);
  void clean_up_partial(const std::filesystem::path& path);
  void commit_text(std::string_view text, const std::string& provenance);
  void write(const std::filesystem::path& path, std::string_view text);
  void publish();
  void settle(const std::string& name);
  [[nodiscard]] std::string link_weights(const std::filesystem::path& weights);
  [[nodiscard]] std::string unlink_weights();
  void copy(const std::filesystem::path& from, const std::filesystem::path& to);
  void remove_if_possible(const std::filesystem::path& path) noexcept;
  [[nodiscard]] const std::filesystem::path& committed_or(const Entry& newest) const;
  void remove(const std::vector<Entry>& entries);

  std::filesystem::path folder_;
  FileSystem& files_;
  // The save that has begun:
  std::string name_;                  // its folder's once it is there
  std::filesystem::path partial_;     // its folder's until then
  std::unique_ptr<FileClaim> claim_;  // on its manifest; null if there is none

  std::filesystem::path committed_;  // last by this object
};

}  // namespace tessera
