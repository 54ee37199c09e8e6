#include "engine/model/training_state.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "engine/model/model.hpp"
#include "engine/model/state_mover.hpp"
#include "tessera/base/error.hpp"
#include "world/host_pool.hpp"

namespace tessera::engine {
namespace {

StateFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return StateFormat::bf16;
    case DType::fp16:
      return StateFormat::fp16;
    default:
      return StateFormat::fp32;
  }
}

StateFormat format_of(MomentFormat moments) {
  switch (moments) {
    case MomentFormat::bf16:
      return StateFormat::bf16;
    case MomentFormat::int8:
      return StateFormat::u8;
    case MomentFormat::fp32:
      break;
  }
  return StateFormat::fp32;
}

/// Elements of a segment for one element of an array.
std::int64_t block_of(StateKind kind) noexcept {
  return kind == StateKind::scales ? kMomentBlock : 1;
}

/// The elements of an array of `kind` for elements [first, end) of a segment or a parameter; a
/// block begins at `first`.
Range in_array(StateKind kind, const Range& range) noexcept {
  const std::int64_t block = block_of(kind);
  return {range.first / block, (range.elems + block - 1) / block};
}

/// This rank's part of one array of a segment's state.
struct SegmentArray {
  StateKind kind{};
  int index = 0;
  StateFormat format{};
  void* data = nullptr;
  Range covers = {};  // elements of the segment; empty if the rank has none
  bool on_host = false;

  /// The address of the element for the segment's element `first`.
  [[nodiscard]] void* at(std::int64_t first) const noexcept {
    const std::int64_t elems = (first - covers.first) / block_of(kind);
    return static_cast<std::byte*>(data) + static_cast<std::size_t>(elems) * bytes_of(format);
  }
};

/// What an array of a parameter is, independent of its place.
struct ArrayForm {
  StateKind kind{};
  int index = 0;
  StateFormat format{};
};

/// Whether any rank trains part of `unit`. This rank may have none of it.
bool trains(const Model& model, const UnitPlan& unit) {
  return model.options().purpose == Purpose::training &&
         std::ranges::any_of(unit.layout.specs(), [](const ParameterSpec& spec) {
           return !spec.tied_to && spec.trainable && std::max(spec.shape.elems(), spec.room) > 0;
         });
}

/// The arrays of a parameter of `unit`, in tensor order: the same on all ranks.
std::vector<ArrayForm> forms_of(const Model& model, const UnitPlan& unit, DType dtype,
                                bool trainable) {
  std::vector<ArrayForm> forms{{.kind = StateKind::weight, .format = format_of(dtype)}};
  if (!trainable || !trains(model, unit)) { return forms; }
  if (dtype != DType::fp32) {
    const bool whole = model.options().master_weights == MasterWeights::fp32;
    forms.push_back({.kind = whole ? StateKind::master : StateKind::remainder,
                     .format = whole ? StateFormat::fp32 : StateFormat::u16});
  }
  const Step* const step = model.optimizer();
  for (int i = 0; step != nullptr && i < step->optimizer().states(); ++i) {
    const MomentFormat moments = step->optimizer().moments();
    forms.push_back({.kind = StateKind::moment, .index = i, .format = format_of(moments)});
    if (moments != MomentFormat::int8) { continue; }
    forms.push_back({.kind = StateKind::scales, .index = i, .format = StateFormat::fp32});
  }
  return forms;
}

void* data_of(const LiveUnit& live, std::size_t s, const ArrayForm& form) {
  if (form.kind == StateKind::weight) { return live.parameters().resident(s).data; }
  if (!live.trains()) { return nullptr; }  // the rank has nothing trainable of it
  if (form.kind == StateKind::master || form.kind == StateKind::remainder) {
    return live.update().first_masters(s).values.data;
  }
  const std::vector<StateArray>& states = live.update().states(s);
  if (states.empty()) { return nullptr; }
  const StateArray& state = states[static_cast<std::size_t>(form.index)];
  return form.kind == StateKind::scales ? state.scales : state.values;
}

/// The arrays of segment `s` of `unit`.
std::vector<SegmentArray> arrays_of(const Model& model, std::size_t unit, std::size_t s) {
  const LiveUnit& live = model.units()[unit];
  const UnitPlan& plan = live.plan();
  const SegmentLayout& segment = plan.layout.segments()[s];
  std::vector<SegmentArray> arrays;
  for (const ArrayForm& form :
       forms_of(model, plan, segment.dtypes().parameter, segment.trainable())) {
    const bool weight = form.kind == StateKind::weight;
    arrays.push_back({.kind = form.kind,
                      .index = form.index,
                      .format = form.format,
                      .data = data_of(live, s, form),
                      .covers = weight ? plan.owned[s].parameters : plan.owned[s].updates,
                      .on_host = !weight && plan.state_on_host()});
  }
  return arrays;
}

/// The elements of segment `s` that this rank reads and writes.
Range share_of_segment(const Model& model, const UnitPlan& unit, std::size_t s) {
  const SegmentLayout& segment = unit.layout.segments()[s];
  if (traits_of(model.options().strategy).parameters == Holding::rank0) {
    return {0, model.world().rank() == 0 ? segment.padded_elems() : 0};
  }
  return unit.owned[s].normed ? segment.shard(model.sharding().normed_shard()) : Range{};
}

/// This rank's arrays of the segments of a unit that `takes(segment)` chooses, as far as ranks that
/// keep the same shards hold them alike.
template <class Takes>
std::vector<MovedArray> moved_arrays(const Model& model, std::size_t unit, const Takes& takes) {
  std::vector<MovedArray> moved;
  const UnitPlan& plan = model.plans()[unit];
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    const SegmentLayout& segment = plan.layout.segments()[s];
    if (!takes(segment)) { continue; }
    const Range kept = model.sharding().kept(segment);
    for (const SegmentArray& array : arrays_of(model, unit, s)) {
      // A shard's bytes are a multiple of 4.
      const auto elems = static_cast<std::size_t>(in_array(array.kind, kept).elems);
      const auto words = static_cast<std::int64_t>(elems * bytes_of(array.format) / sizeof(float));
      moved.push_back({{array.at(kept.first), words, DType::fp32}, array.on_host});
    }
  }
  return moved;
}

struct RuleName {
  std::string operator()(const AdamW& /*rule*/) const { return "AdamW"; }
  std::string operator()(const Adam& /*rule*/) const { return "Adam"; }
  std::string operator()(const Lion& /*rule*/) const { return "Lion"; }
  std::string operator()(const SGD& /*rule*/) const { return "SGD"; }
  std::string operator()(const CustomOptimizer& rule) const { return rule.name; }
};

/// Waits for enqueued work, and throws what ended a stream.
void settle(World& world) {
  world.quiesce();
  for (const Stream stream :
       {world.compute_stream(), world.gather_channel().stream, world.reduce_channel().stream}) {
    stream.rethrow();
  }
}

}  // namespace

std::size_t bytes_of(StateFormat format) noexcept {
  switch (format) {
    case StateFormat::fp32:
      return 4;
    case StateFormat::bf16:
    case StateFormat::fp16:
    case StateFormat::u16:
      return 2;
    case StateFormat::u8:
      break;
  }
  return 1;
}

TrainingState::TrainingState(ShardedModel& model, std::string call)
    : model_{model.live()}, call_{std::move(call)} {
  model_.require_between_steps(call_.c_str());
  mark_ = model_.world().device().make_event();
  for (std::size_t u = 0; u < model_.plans().size(); ++u) { list_unit(u); }
  first_of_unit_.push_back(share_.size());
}

// An update that still waits for the caller's event would outlive it.
TrainingState::~TrainingState() {
  if (!copies_ || model_.world_ended()) { return; }
  world::HostPool pool{model_.world()};
  const bool offloads = std::ranges::any_of(model_.plans(), &UnitPlan::state_on_host);
  const Stream copies = pool.copy_stream(world::CopyKind::snapshots);
  for (const Stream stream : {copies, offloads ? pool.host_copy_stream() : copies}) {
    try {
      stream.wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the stream keeps it, and copies nothing more
    }
  }
  for (LiveUnit& unit : model_.units()) {
    if (unit.trains()) { unit.update().drop_holds(); }
  }
}

void TrainingState::list_unit(std::size_t unit) {
  const UnitPlan& plan = model_.plans()[unit];
  std::vector<std::size_t> first_tensor(plan.infos.size());
  for (std::size_t p = 0; p < plan.infos.size(); ++p) {
    const ParameterSpec& spec = plan.layout.specs()[p];
    first_tensor[p] = tensors_.size();
    if (spec.tied_to) { continue; }  // an alias
    const DType dtype = spec.dtype.value_or(model_.options().compute);
    for (const ArrayForm& form : forms_of(model_, plan, dtype, spec.trainable)) {
      tensors_.push_back({.parameter = &plan.infos[p],
                          .kind = form.kind,
                          .index = form.index,
                          .format = form.format,
                          .elems = in_array(form.kind, {0, spec.shape.elems()}).elems});
    }
  }

  const auto first = static_cast<std::ptrdiff_t>(share_.size());
  first_of_unit_.push_back(share_.size());
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    const Range mine = share_of_segment(model_, plan, s);
    const std::vector<SegmentArray> arrays = arrays_of(model_, unit, s);
    for (const Piece& piece : plan.layout.segments()[s].pieces(Ranges{mine})) {
      for (std::size_t a = 0; a < arrays.size(); ++a) {
        const SegmentArray& array = arrays[a];
        share_.push_back({.tensor = first_tensor[piece.parameter] + a,
                          .unit = unit,
                          .part = &plan.layout.part(piece.parameter),
                          .block = block_of(array.kind),
                          .elems = in_array(array.kind, {piece.first_in_parameter, piece.elems}),
                          .data = array.at(mine.first + piece.first_in_shard),
                          .on_host = array.on_host});
      }
    }
  }
  std::ranges::sort(share_.begin() + first, share_.end(), {}, &StatePiece::tensor);
}

std::span<const StatePiece> TrainingState::share_of(std::size_t unit) const {
  expects(unit < units(), "share_of: the model has no such unit");
  return std::span{share_}.subspan(first_of_unit_[unit],
                                   first_of_unit_[unit + 1] - first_of_unit_[unit]);
}

std::size_t TrainingState::most_share_bytes(std::size_t beside) const {
  std::size_t bytes = 0;
  for (std::size_t u = 0; u < units(); ++u) {
    const UnitPlan& plan = model_.plans()[u];
    for (std::size_t s = 0; s < plan.segments(); ++s) {
      const SegmentLayout& segment = plan.layout.segments()[s];
      const std::int64_t elems = share_of_segment(model_, plan, s).elems;  // includes padding
      if (elems == 0) { continue; }
      const std::size_t pieces = segment.pieces(Ranges{Range{0, segment.padded_elems()}}).size();
      for (const SegmentArray& array : arrays_of(model_, u, s)) {
        const auto count = static_cast<std::size_t>(in_array(array.kind, {0, elems}).elems);
        bytes += count * bytes_of(array.format) + pieces * beside;
      }
    }
  }
  return bytes;
}

bool TrainingState::has_optimizer() const noexcept {
  return model_.optimizer() != nullptr;
}

std::string TrainingState::optimizer_name() const {
  if (!has_optimizer()) { return {}; }
  return std::visit(RuleName{}, model_.optimizer()->optimizer().rule());
}

StateCounters TrainingState::counters() const {
  model_.require_between_steps(call_.c_str());
  StateCounters counters{.steps = model_.steps()};
  if (!has_optimizer()) { return counters; }
  const kernels::StepScalars& scalars = model_.optimizer()->optimizer().scalars();
  counters.updates = scalars.updates;
  counters.loss_scale = scalars.loss_scale;
  counters.good_steps = scalars.good_steps;
  counters.skipped_in_a_row = scalars.skipped_in_a_row;
  counters.skipped = scalars.skipped;
  return counters;
}

void TrainingState::copy_out(std::size_t unit, std::span<void* const> to, Event copied) {
  model_.require_between_steps(call_.c_str());
  const std::span<const StatePiece> pieces = share_of(unit);
  expects(to.size() == pieces.size(),
          "copy_out: `to` needs one address for each piece of the unit");
  World& world = model_.world();
  const LiveUnit& live = model_.units()[unit];
  world::HostPool pool{world};
  copies_ = true;

  Stream last = pool.copy_stream(world::CopyKind::snapshots);
  world.compute_stream().record(mark_.get());
  last.wait_for(mark_.get());
  live.parameters().await_arrival(last);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].on_host) { continue; }
    const std::size_t bytes = bytes_of_piece(pieces[i]);
    pool.copy_out(to[i], pieces[i].data, bytes, live.name(), world::CopyKind::snapshots);
  }
  if (live.plan().state_on_host()) {
    last.record(mark_.get());
    last = pool.host_copy_stream();
    last.wait_for(mark_.get());
    live.update().state_writer().record(mark_.get());
    last.wait_for(mark_.get());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!pieces[i].on_host) { continue; }
      pool.copy_on_host(to[i], pieces[i].data, bytes_of_piece(pieces[i]), live.name());
    }
  }
  last.record(copied);
  if (live.trains()) { live.update().hold(copied); }
}

void TrainingState::require_no_gradients() const {
  model_.require_no_gradients(call_.c_str());
}

void TrainingState::begin_write() {
  model_.require_between_steps(call_.c_str());
  settle(model_.world());
}

void TrainingState::write(const StatePiece& piece, std::int64_t first, std::int64_t count,
                          const void* from) {
  expects(first >= 0 && count >= 0 && first + count <= piece.elems.elems,
          "write: the elements are not all in the piece");
  const std::size_t size = bytes_of(tensors_[piece.tensor].format);
  void* const to = static_cast<std::byte*>(piece.data) + static_cast<std::size_t>(first) * size;
  const std::size_t bytes = static_cast<std::size_t>(count) * size;
  World& world = model_.world();
  if (piece.on_host) {
    return world.compute([&] { std::memcpy(to, from, bytes); });
  }
  world.device().copy_in(to, from, bytes, world.compute_stream());
  world.compute_stream().wait();
}

const std::string& TrainingState::loaded_run() const noexcept {
  return model_.loaded_run();
}

void TrainingState::set_loaded_run(std::string folder) {
  model_.set_loaded_run(std::move(folder));
}

// Units are in declaration order, the same on all ranks.
void TrainingState::end_write(const StateCounters& counters) {
  model_.require_between_steps(call_.c_str());
  World& world = model_.world();
  const StrategyTraits traits = traits_of(model_.options().strategy);
  const bool divided = traits.parameters != Holding::rank0;
  StateMover mover{world, model_.sharding()};
  for (std::size_t u = 0; u < units(); ++u) {
    const UnitPlan& plan = model_.plans()[u];
    if (divided && model_.sharding().kept_shards() > 1) {
      mover.among_replicas(plan.name, moved_arrays(model_, u, [](const SegmentLayout& segment) {
                             return segment.shard_elems() > 0;
                           }));
    }
    if (model_.sharding().tensor().size > 1) {
      mover.along_tensor(moved_arrays(model_, u, [](const SegmentLayout& segment) {
        return segment.tensor() != TensorKind::own;
      }));
    }
    if (plan.places.size() > 1) {
      mover.along_pipe(plan.places, moved_arrays(model_, u, [](const auto&) { return true; }));
    }
    if (plan.traits.parameters != plan.traits.optimizer) {
      std::vector<View> parameters;
      for (std::size_t s = 0; s < plan.segments(); ++s) {
        parameters.push_back(model_.units()[u].parameters().resident(s));
      }
      mover.whole_parameters(plan, parameters);
    }
  }
  settle(world);
  for (LiveUnit& unit : model_.units()) {
    unit.parameters().drop_stale();
    if (!unit.trains()) { continue; }
    unit.update().drop_holds();
    world.compute([&] { unit.update().begin(); });
  }
  model_.continue_after(counters.steps, {.updates = counters.updates,
                                         .loss_scale = counters.loss_scale,
                                         .used_loss_scale = counters.loss_scale,
                                         .good_steps = counters.good_steps,
                                         .skipped_in_a_row = counters.skipped_in_a_row,
                                         .skipped = counters.skipped});
}

std::size_t TrainingState::bytes_of_piece(const StatePiece& piece) const noexcept {
  return static_cast<std::size_t>(piece.elems.elems) * bytes_of(tensors_[piece.tensor].format);
}

}  // namespace tessera::engine
