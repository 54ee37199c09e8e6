#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/pipeline/schedule.hpp"

namespace tessera::pipeline {

/// What is sent one way from a rank to another or, if both are the same rank, from a stage to the
/// next. Items are named by the action that makes them.
struct Link {
  Work way = Work::forward;  ///< forward: outputs of stages; backward: gradients of their inputs
  int from = 0;
  int to = 0;
  std::vector<Action> items;  ///< in the order in which `from` makes them
  int from_buffers = 0;  ///< buffers in which `from` writes items that wait to leave; 0 on one rank
  int to_buffers = 0;    ///< buffers in which `to` holds items

  [[nodiscard]] bool local() const noexcept { return from == to; }
};

/// One item of a link.
struct Item {
  int link = -1;
  int number = 0;  ///< index into Link::items

  /// Whether there is one.
  [[nodiscard]] explicit operator bool() const noexcept { return link >= 0; }
};

/// An action with the items that it reads and makes.
struct Step {
  Action action;
  int slot = 0;          ///< Turn::slot
  Item input;            ///< input of the stage
  Item output;           ///< output of the stage, in a forward pass
  Item output_gradient;  ///< used by the pass that makes the gradient of the stage's input
  Item input_gradient;   ///< made by the same pass

  /// The item that it is the first to read.
  [[nodiscard]] Item takes() const noexcept {
    return action.work == Work::forward ? input : output_gradient;
  }
  [[nodiscard]] Item gives() const noexcept {
    return action.work == Work::forward ? output : input_gradient;
  }
  /// Whether it is the last to read its stage's input.
  [[nodiscard]] bool ends() const noexcept {
    return action.work == Work::backward || action.work == Work::backward_weight;
  }
};

/// The items that a rank has asked for on each link that ends at it, before each of its steps: all
/// that it has needed so far and one more, which is in transit while it computes.
class Asked {
 public:
  explicit Asked(std::size_t links) : needed_(links) {}

  /// Notes that the rank reaches `step`.
  void come_to(const Step& step);
  /// Returns the number of items asked for on link `number`.
  [[nodiscard]] int of(int number, const Link& link) const;

 private:
  std::vector<int> needed_;  // by link
};

/// The next action of a rank's host in a step.
struct Move {
  enum class Kind : std::uint8_t {
    ask,   ///< asks for the next item of a link
    make,  ///< makes a step
    send,  ///< sends the next item of a link
  };
  Kind kind = Kind::make;
  int number = 0;  ///< number of the link, or of the step
};

/// A schedule's links, and its actions with the items sent over them.
struct Wiring {
  std::vector<Link> links;
  std::vector<std::vector<Step>> ranks;       ///< by rank, in order
  std::vector<std::vector<Move>> in_concert;  ///< by rank: its moves, see `wire`

  /// Returns the number of buffers of a boundary's size on `rank`.
  [[nodiscard]] int buffers(int rank) const;
};

/// Returns the wiring of a schedule that has passed `check`. Its buffers are the fewest with which
/// every rank has what Asked says, and no rank waits for ever
/// (docs/decisions/0031-pipelines-run-schedules.md).
///
/// `in_concert` gives each rank its part of one list of all steps and transfers: asking for an item
/// and sending it are one entry, which both ranks reach at once. It is for transports on which the
/// hosts of both ranks may have to meet, and for devices that compute behind their hosts.
[[nodiscard]] Wiring wire(const Schedule& schedule);

/// Returns a rank's moves where asking and sending do not block: it asks as soon as Asked says, and
/// sends at once. It is for hosts that compute themselves.
[[nodiscard]] std::vector<Move> moves_at_once(const Wiring& wiring, int rank);

/// Divides `links` into classes so that no rank is at an end of two links of one class and
/// direction, and a link has the class of the link that returns its gradients. Returns the class of
/// each link; -1 for local ones.
[[nodiscard]] std::vector<int> classes_of(const std::vector<Link>& links);

}  // namespace tessera::pipeline
