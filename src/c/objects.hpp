#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "c/handles.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/world/world.hpp"

namespace tessera::c {

/// The DLPack views held of a scope. Threads: any.
class HeldViews {
 public:
  void add(const std::string& name);
  void remove(const std::string& name) noexcept;
  /// "'weight', 'bias'", or empty.
  [[nodiscard]] std::string names() const;

 private:
  mutable std::mutex mutex_;
  std::multiset<std::string> names_;
};

/// An open scope.
struct OpenScope {
  using Handle = tessera_scope;
  static constexpr const char* kName = "scope";

  class OpenModel* model;
  tessera_unit unit;
  std::variant<ForwardScope, BackwardScope> scope;
  std::shared_ptr<HeldViews> views = std::make_shared<HeldViews>();

  [[nodiscard]] const Scope& any() const;
  /// Throws ContractError in a forward scope.
  [[nodiscard]] const BackwardScope& backward(Call call) const;
};

/// An evaluation that has not ended.
struct OpenEvaluation {
  using Handle = tessera_evaluation;
  static constexpr const char* kName = "evaluation";

  OpenModel* model;
  Evaluation evaluation;
};

/// A model with its open scopes. DLPack views keep it alive.
class OpenModel {
 public:
  using Handle = tessera_model;
  static constexpr const char* kName = "model";

  OpenModel(class Rank& rank, const ModelOptions& options);

  [[nodiscard]] Rank& rank() const noexcept { return *rank_; }
  [[nodiscard]] const tessera_model* handle() const noexcept { return handle_; }
  [[nodiscard]] ShardedModel& sharded() const noexcept { return *sharded_; }

  /// Converts the C interface's number of a unit, and back. Throws ContractError for a unit of
  /// another model.
  [[nodiscard]] tessera_unit number_of(Unit unit) const noexcept;
  [[nodiscard]] Unit unit_of(Call call, tessera_unit unit) const;

  [[nodiscard]] tessera_scope* open(tessera_unit unit,
                                    std::variant<ForwardScope, BackwardScope>&& scope);
  void close(tessera_scope* handle, OpenScope& scope);
  [[nodiscard]] tessera_evaluation* begin_evaluation();
  void end_evaluation(Call call);

  /// Throws ContractError for the call, or for the return of a rank's callback, if a scope or an
  /// evaluation is open.
  void require_nothing_open(Call call) const;
  /// Ends everything open, as an error or the rank's end requires.
  void end_all() noexcept;

 private:
  friend class Rank;
  Rank* rank_;
  tessera_model* handle_ = nullptr;
  std::unique_ptr<ShardedModel> sharded_;
  std::map<tessera_scope*, std::shared_ptr<OpenScope>> scopes_;
  std::shared_ptr<OpenEvaluation> evaluation_;
  tessera_evaluation* evaluation_handle_ = nullptr;
};

/// The program's own memory that is counted.
struct Registration {
  using Handle = tessera_registration;
  static constexpr const char* kName = "registration";

  class Rank* rank;
  CountedMemory memory;
};

/// The object that a rank's callback gets, and everything that it has made. All of it ends with
/// this object.
class Rank {
 public:
  using Handle = tessera_world;
  static constexpr const char* kName = "world";

  explicit Rank(World& world) noexcept : world_{&world} {}
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank();

  [[nodiscard]] World& world() const noexcept { return *world_; }

  [[nodiscard]] tessera_model* add_model(const ModelOptions& options);
  void remove_model(tessera_model* handle) noexcept;
  [[nodiscard]] tessera_registration* add_registration(CountedMemory memory);
  void remove_registration(tessera_registration* handle) noexcept;
  [[nodiscard]] void* add_buffer(Buffer buffer);
  /// Returns whether there was one at `address`.
  [[nodiscard]] bool remove_buffer(void* address) noexcept;

  /// Throws ContractError if a scope or an evaluation is open.
  void require_nothing_open(Call call) const;
  void end_all() noexcept;

 private:
  World* world_;
  std::vector<std::pair<tessera_model*, std::shared_ptr<OpenModel>>> models_;
  std::set<tessera_registration*> registrations_;
  std::unordered_map<void*, Buffer> buffers_;
};

}  // namespace tessera::c
