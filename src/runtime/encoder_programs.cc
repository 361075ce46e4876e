#include "runtime/encoder_programs.h"

#include <sys/mman.h>

#include "base/assign.h"
#include "runtime/prefix_cache.h"

namespace situ {

IoMemory::~IoMemory() {
  if (begin) munmap(begin, bytes);
  if (begin && counted) *counted -= static_cast<int64_t>(bytes);
}

Status IoMemory::reserve(const Plan& plan, const std::string& name) {
  if (begin) return Status::ok();
  bytes = static_cast<size_t>(plan.io_bytes + 64);
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    return Status::error(Code::kNoRoom, "cannot reserve " + std::to_string(bytes) + " bytes for " + name);
  begin = static_cast<std::byte*>(p);
  if (counted) *counted += static_cast<int64_t>(bytes);
  return Status::ok();
}

Status EncoderRoom::claim(const EncoderProgram& program, const std::string& name) {
  if (!budget.is_set) return Status::ok();
  const int64_t arena = std::max(budget.arena, program.plan.arena_bytes), needed = arena + *io_bytes,
                more = needed - budget.taken, slot = states->bytes_per_slot();
  if (more <= 0) return Status::ok();
  if (more > budget.left) {
    const int64_t slots = slot > 0 ? (more - budget.left + slot - 1) / slot : INT64_MAX;
    const auto no_room = [&] {
      return Status::error(Code::kNoRoom, name + ": one run needs " + std::to_string(needed) +
                                              " bytes, of which the memory that was given has " +
                                              std::to_string(budget.taken + std::max<int64_t>(0, budget.left)) +
                                              " left beside a state of " + std::to_string(states->capacity()) +
                                              " slots of " + std::to_string(slot) + " bytes");
    };
    if (budget.fixed_slots || slots >= states->capacity()) return no_room();
    while (!states->space(SpaceKind::kAppend).cut(slots))
      if (!prefixes || !prefixes->drop_oldest()) return no_room();
    states->give_back();
    budget.left += slots * slot;
  }
  budget.left -= more;
  budget.taken = needed;
  budget.arena = arena;
  return Status::ok();
}

Status EncoderProgram::place(const EncoderRoom& room, const std::string& name) {
  if (program) return Status::ok();
  if (plan.arena_bytes > room.arena_bytes)
    return Status::error(Code::kNoRoom, name + ": one run needs " + std::to_string(plan.arena_bytes) +
                                            " bytes of activations, more than " + std::to_string(room.arena_bytes));
  io.counted = room.io_bytes;
  SITU_RETURN_IF_ERROR(io.reserve(plan, name));
  Regions regions = room.regions;
  regions.io = io.begin;
  SITU_RETURN_IF_ERROR(
      assign(&program, Program::create(compiled.graph, compiled.binding, plan, {"", {}, "an encoder takes one prompt"},
                                       regions, *room.executor))
          .with_context(name));
  return Status::ok();
}

std::shared_ptr<ProgramBuilder::Build> ProgramBuilder::start(Work work) {
  auto build = std::make_shared<Build>();
  const auto run = [build, work = std::move(work), threads = threads_] {
    build->status = or_error("to prepare an encoder", [&] {
      ThreadPool pool(threads);
      return work(*build, pool);
    });
    build->done = true;
  };
  if (!thread_.post(run)) run();
  return build;
}

Encoding::~Encoding() {
  room_.leave(this);
  if (!build_) return;
  const std::lock_guard held(build_->reading);
  build_->abandoned = true;
}

Result<bool> Encoding::go_on(Clock::time_point until, std::vector<Stage>* stages) {
  return or_error("to run the encoder", [&] {
    clock_.go_on();
    Result<bool> done = run(room_.always_suspended ? Clock::time_point::min() : until, stages);
    clock_.pause();
    return done;
  });
}

}  // namespace situ
