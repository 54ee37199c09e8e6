#include "tessera/pipeline/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/agreement.hpp"
#include "pipeline/boxes.hpp"
#include "pipeline/wiring.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "world/world_access.hpp"
#include "world/world_life.hpp"

namespace tessera::pipeline {
namespace {

void require_ranks(const Schedule& schedule, const Mesh& mesh) {
  const int along = mesh.size("pipe");
  if (std::ssize(schedule.ranks) == along) { return; }
  throw ConfigError{fmt::format(
      "schedule {} is for {} ranks, but the mesh {} has {} along pipe; make the schedule for {}",
      schedule.name, schedule.ranks.size(), mesh.shape().to_string(), along, along)};
}

Wiring checked_wiring(const Schedule& schedule) {
  check(schedule);
  return wire(schedule);
}

Wiring checked_wiring(const Schedule& schedule, const Mesh& mesh) {
  require_ranks(schedule, mesh);
  return checked_wiring(schedule);
}

/// *Collective.* Ranks with different schedules would wait for items that no rank sends. The number
/// of elements of an item is compared where it is sent: ranks along tensor may have slices of
/// different sizes.
void require_same(World& world, const Schedule& schedule, Boundary boundary) {
  if (!engine::can_disagree(world)) { return; }
  std::vector<std::size_t> ends{1};  // by rank along pipe: of its lines, after the first line
  for (const std::vector<Action>& actions : schedule.ranks) {
    ends.push_back(ends.back() + actions.size());
  }
  const auto line = [&](std::size_t at) {
    if (at == 0) {
      return fmt::format("schedule {}, {} between stages", schedule.name,
                         to_string(boundary.dtype));
    }
    const auto end = std::ranges::upper_bound(ends, at);
    const auto rank = static_cast<std::size_t>(end - ends.begin()) - 1;
    return fmt::format("{} on rank {}", to_string(schedule.ranks[rank][at - ends[rank]]), rank);
  };
  engine::require_agreement(world, "the schedule of a Pipeline", {ends.back(), line});
}

/// Where devices compute behind their hosts, a host may be held up until its peer has submitted
/// too: always among ranks that are threads, and where NCCL meets a peer for the first time.
std::vector<Move> moves_of(const Wiring& wiring, const World& world, int rank) {
  return world::WorldAccess::computes_behind_host(world)
             ? wiring.in_concert[narrow<std::size_t>(rank)]
             : moves_at_once(wiring, rank);
}

std::size_t bytes_of(const Wiring& wiring, Boundary boundary, int place) {
  return narrow<std::size_t>(wiring.buffers(place)) * Arena::need(bytes_of(boundary));
}

/// By class: the place along pipe of each rank's partner, or its own.
std::vector<std::vector<int>> partners(const Wiring& wiring, const std::vector<int>& classes) {
  std::vector<std::vector<int>> all;
  for (std::size_t l = 0; l < classes.size(); ++l) {
    if (classes[l] < 0) { continue; }
    const auto number = static_cast<std::size_t>(classes[l]);
    while (all.size() <= number) {
      std::vector<int>& alone = all.emplace_back();
      for (std::size_t r = 0; r < wiring.ranks.size(); ++r) {
        alone.push_back(static_cast<int>(r));
      }
    }
    const Link& link = wiring.links[l];
    all[number][static_cast<std::size_t>(link.from)] = link.to;
    all[number][static_cast<std::size_t>(link.to)] = link.from;
  }
  return all;
}

/// The pipelines of a mesh: by rank its pipeline, and its index there.
struct PipePlaces {
  int size;
  std::vector<int> group;
  std::vector<int> index;
};

PipePlaces places_along_pipe(const MeshShape& shape) {
  const MeshGroups pipe = shape.along({"pipe"});
  PipePlaces places{pipe.size(), pipe.groups(), {}};
  places.index.reserve(places.group.size());
  for (int rank = 0; rank < shape.ranks(); ++rank) { places.index.push_back(pipe.index_of(rank)); }
  return places;
}

}  // namespace

struct Pipeline::State {
  world::WorldGuest guest;
  World& world;
  Schedule schedule;
  Boundary boundary;
  int place;  // index along pipe
  Wiring wiring;
  std::vector<Move> moves;
  int most_in_flight;
  Arena arena;
  std::map<int, Inbox> inboxes;  // by link
  std::map<int, Outbox> outboxes;
  bool running = false;  // or interrupted by an exception

  State(const Mesh& mesh, Schedule schedule_, Boundary boundary_)
      : guest{mesh.world()},
        world{mesh.world()},
        schedule{std::move(schedule_)},
        boundary{boundary_},
        place{mesh.index("pipe")},
        wiring{checked_wiring(schedule, mesh)},
        moves{moves_of(wiring, world, place)},
        most_in_flight{pipeline::most_in_flight(schedule)[narrow<std::size_t>(place)]},
        arena{world.allocate(Category::activations, bytes_of(wiring, boundary, place),
                             "what stages hand to each other", BufferUse::parts)} {
    require_same(world, schedule, boundary);
    join_links(mesh);
  }

  void join_links(const Mesh& mesh) {
    const std::vector<int> classes = classes_of(wiring.links);
    const auto by_class = partners(wiring, classes);
    const PipePlaces places = places_along_pipe(mesh.shape());
    std::vector<Channel> forward;
    std::vector<Channel> backward;
    for (std::size_t c = 0; c < by_class.size(); ++c) {
      forward.push_back(join_pairs(places, by_class[c], fmt::format("pipe forward {}", c)));
      backward.push_back(join_pairs(places, by_class[c], fmt::format("pipe backward {}", c)));
    }
    const BoxPlace box{world, arena, boundary};
    for (int l = 0; l < std::ssize(wiring.links); ++l) {
      const Link& link = wiring.links[narrow<std::size_t>(l)];
      if (link.from != place && link.to != place) { continue; }
      std::optional<Pair> pair;
      if (!link.local()) {
        const auto c = narrow<std::size_t>(classes[narrow<std::size_t>(l)]);
        const Channel& channel = (link.way == Work::forward ? forward : backward)[c];
        pair.emplace(channel, link.from < link.to ? 0 : 1);
      }
      if (link.to == place) {
        inboxes.emplace(l, Inbox{link, pair, box});
      } else {
        outboxes.emplace(l, Outbox{link, *pair, box});
      }
    }
  }

  /// *Collective over all ranks of the mesh.*
  Channel join_pairs(const PipePlaces& places, const std::vector<int>& partner,
                     const std::string& name) {
    const GroupOf first_of_pair = [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      const int index = places.index[r];
      const int first = std::min(index, partner[static_cast<std::size_t>(index)]);
      return places.group[r] * places.size + first;
    };
    return world.split_beside(first_of_pair, name);
  }

  [[nodiscard]] View view(Item item) {
    return item ? inboxes.at(item.link).view(item.number) : View{nullptr, 0, boundary.dtype};
  }
  [[nodiscard]] View open(Item item) {
    if (!item) { return view(item); }
    const auto inbox = inboxes.find(item.link);
    return inbox != inboxes.end() ? inbox->second.open(item.number)
                                  : outboxes.at(item.link).open(item.number);
  }
  void close_output(Item item) {
    const auto outbox = item ? outboxes.find(item.link) : outboxes.end();
    if (outbox != outboxes.end()) { outbox->second.close(); }
  }
  void close(Item item) {
    if (item) { inboxes.at(item.link).close(item.number); }
  }

  void make(const Step& step, const Passes& passes) {
    const Turn turn{step.action, step.slot};
    if (const Item item = step.takes()) { inboxes.at(item.link).wait_for(item.number); }
    switch (step.action.work) {
      case Work::forward:
        passes.forward(turn, view(step.input), open(step.output));
        break;
      case Work::backward:
      case Work::backward_input:
        passes.backward(turn, view(step.input), view(step.output_gradient),
                        open(step.input_gradient));
        break;
      case Work::backward_weight:
        passes.backward_weight(turn, view(step.input));
        break;
    }
    close_output(step.gives());
    close(step.output_gradient);
    if (step.ends()) { close(step.input); }
  }
};

Pipeline::Pipeline(const Mesh& mesh, Schedule schedule, Boundary boundary)
    : state_{std::make_unique<State>(mesh, std::move(schedule), boundary)} {}

// Items may be in transit.
Pipeline::~Pipeline() {
  if (!state_->guest.world_ended()) { state_->world.quiesce(); }
}

void Pipeline::run(const Passes& passes) {
  State& s = *state_;
  s.guest.require_world("a Pipeline");
  expects(!s.running, "Pipeline::run: the previous step has not been finished");
  const std::vector<Step>& steps = s.wiring.ranks[narrow<std::size_t>(s.place)];
  const bool divided = std::ranges::any_of(
      steps, [](const Step& step) { return step.action.work == Work::backward_weight; });
  expects(passes.forward && passes.backward && (passes.backward_weight || !divided),
          "Pipeline::run: Passes::forward, backward or backward_weight is empty; only the last one "
          "may be, if the schedule divides no backward pass");
  s.running = true;
  for (const Move& move : s.moves) {
    switch (move.kind) {
      case Move::Kind::ask:
        s.inboxes.at(move.number).ask();
        break;
      case Move::Kind::make:
        s.make(steps[narrow<std::size_t>(move.number)], passes);
        break;
      case Move::Kind::send:
        s.outboxes.at(move.number).send();
        break;
    }
  }
  for (auto& [number, inbox] : s.inboxes) { inbox.end_step(); }
  for (auto& [number, outbox] : s.outboxes) { outbox.end_step(); }
  s.running = false;
}

const Schedule& Pipeline::schedule() const noexcept {
  return state_->schedule;
}

int Pipeline::most_in_flight() const noexcept {
  return state_->most_in_flight;
}

std::size_t Pipeline::bytes_needed(const Schedule& schedule, Boundary boundary, int place) {
  expects(place >= 0 && place < std::ssize(schedule.ranks),
          "bytes_needed: this place along pipe does not exist");
  return bytes_of(checked_wiring(schedule), boundary, place);
}

}  // namespace tessera::pipeline
