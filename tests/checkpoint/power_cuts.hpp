#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/forwarding_files.hpp"

namespace tessera::test {

/// Files in a real folder, with a model of the disk that knows which contents and names have been
/// flushed. After every call, `cut` may inspect what a power cut would leave at that moment.
class PowerCuts final : public ForwardingFiles {
 public:
  /// The unflushed changes that reached the disk anyway.
  enum class Unflushed {
    nothing,    ///< flushed contents under flushed names
    names,      ///< all names; contents as they were flushed
    contents,   ///< all contents; names as they were flushed
    last_name,  ///< only each folder's last change of a name; contents as they were flushed
    some        ///< random per change of a name and per file; contents may be zeros
  };

  explicit PowerCuts(std::filesystem::path root) : root_{std::move(root)}, disk_{folder_node()} {}

  /// Called after each file operation.
  std::function<void()> cut;

  /// Builds the files that a power cut now would leave, in the empty folder `to`.
  void leave(const std::filesystem::path& to, Unflushed unflushed, std::uint32_t seed) const {
    std::mt19937 draws{seed};
    leave(*disk_, to, unflushed, draws);
  }

  void make_folder(const std::filesystem::path& path) override {
    const bool was_there = std::filesystem::exists(path);
    system_.make_folder(path);
    if (!was_there) { add(path, folder_node()); }
    done();
  }
  std::unique_ptr<checkpoint::WritableFile> open(const std::filesystem::path& path,
                                                 std::uint64_t bytes) override {
    auto file = system_.open(path, bytes);
    if (!find(path)) { add(path, std::make_shared<Node>()); }
    const auto node = find(path);
    node->now.resize(bytes);
    done();
    return std::make_unique<File>(*this, node, std::move(file));
  }
  std::unique_ptr<checkpoint::FileClaim> claim(const std::filesystem::path& path) override {
    auto claim = system_.claim(path);
    if (claim) { add(path, std::make_shared<Node>()); }
    done();
    return claim;
  }
  bool link(const std::filesystem::path& from, const std::filesystem::path& to) override {
    const bool linked = has_links && system_.link(from, to);
    if (linked) { add(to, find(from)); }
    done();
    return linked;
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    system_.rename(from, to);
    const auto node = find(from);
    const auto folder = find(to.parent_path());
    if (from.parent_path() == to.parent_path()) {  // one change: both names or none
      folder->change({from.filename(), to.filename(), node});
    } else {
      find(from.parent_path())->change({from.filename(), {}, {}});
      folder->change({{}, to.filename(), node});
    }
    done();
  }
  void flush_folder(const std::filesystem::path& path) override {
    const auto folder = find(path);
    folder->kept_names = folder->names;
    folder->changes.clear();
    done();
  }
  bool remove_empty(const std::filesystem::path& path) override {
    const bool removed = system_.remove_empty(path);
    if (removed) { find(path.parent_path())->change({path.filename(), {}, {}}); }
    done();
    return removed;
  }
  void remove_all(const std::filesystem::path& path) override {
    system_.remove_all(path);
    if (const auto node = find(path)) {
      const auto inner = node->names;
      for (const auto& [name, ignored] : inner) { node->change({name, {}, {}}); }
      find(path.parent_path())->change({path.filename(), {}, {}});
    }
    done();
  }

  /// Whether the file system has hard links.
  bool has_links = true;

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodePtr>;
  struct Change {
    std::optional<std::string> removed;
    std::optional<std::string> added;
    NodePtr node;
    void apply(Names& names) const {
      if (removed) { names.erase(*removed); }
      if (added) { names[*added] = node; }
    }
  };
  struct Node {
    bool is_folder = false;
    std::string now;   // a file's contents
    std::string kept;  // a file's flushed contents
    Names names;       // a folder's entries
    Names kept_names;
    std::vector<Change> changes;  // since the last flush

    void change(Change made) {
      made.apply(names);
      changes.push_back(std::move(made));
    }
  };

  static NodePtr folder_node() {
    auto node = std::make_shared<Node>();
    node->is_folder = true;
    return node;
  }

  class File final : public checkpoint::WritableFile {
   public:
    File(PowerCuts& cuts, NodePtr node, std::unique_ptr<checkpoint::WritableFile> file)
        : cuts_{cuts}, node_{std::move(node)}, file_{std::move(file)} {}
    void write_at(std::uint64_t first, std::span<const std::byte> bytes) override {
      file_->write_at(first, bytes);
      node_->now.replace(first, bytes.size(), reinterpret_cast<const char*>(bytes.data()),
                         bytes.size());
      cuts_.done();
    }
    void flush() override {
      node_->kept = node_->now;
      cuts_.done();
    }

   private:
    PowerCuts& cuts_;
    NodePtr node_;
    std::unique_ptr<checkpoint::WritableFile> file_;
  };

  void done() const {
    if (cut) { cut(); }
  }

  [[nodiscard]] NodePtr find(const std::filesystem::path& path) const {
    NodePtr node = disk_;
    for (const auto& name : path.lexically_relative(root_)) {
      if (name == ".") { continue; }
      const auto found = node->names.find(name);
      if (found == node->names.end()) { return {}; }
      node = found->second;
    }
    return node;
  }
  void add(const std::filesystem::path& path, NodePtr node) {
    find(path.parent_path())->change({{}, path.filename(), std::move(node)});
  }

  static Names names_of(const Node& node, Unflushed unflushed, std::mt19937& draws) {
    if (unflushed == Unflushed::names) { return node.names; }
    Names names = node.kept_names;
    if (unflushed == Unflushed::last_name && !node.changes.empty()) {
      node.changes.back().apply(names);
    }
    if (unflushed == Unflushed::some) {
      for (const Change& change : node.changes) {
        if (draws() % 2 == 0) { change.apply(names); }
      }
    }
    return names;
  }
  static std::string contents_of(const Node& node, Unflushed unflushed, std::mt19937& draws) {
    if (unflushed == Unflushed::contents) { return node.now; }
    if (unflushed != Unflushed::some || node.now == node.kept) { return node.kept; }
    const auto drawn = draws() % 3;
    return drawn == 0 ? node.kept : drawn == 1 ? node.now : std::string(node.now.size(), '\0');
  }
  static void leave(const Node& node, const std::filesystem::path& to, Unflushed unflushed,
                    std::mt19937& draws) {
    if (!node.is_folder) {
      std::ofstream{to, std::ios::binary} << contents_of(node, unflushed, draws);
      return;
    }
    std::filesystem::create_directory(to);
    for (const auto& [name, inner] : names_of(node, unflushed, draws)) {
      leave(*inner, to / name, unflushed, draws);
    }
  }

  std::filesystem::path root_;
  NodePtr disk_;
};

}  // namespace tessera::test
