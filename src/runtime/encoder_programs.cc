#include "runtime/encoder_programs.h"

#include "base/assign.h"
#include "runtime/prefix_cache.h"

namespace situ {

IoMemory::~IoMemory() {
  if (counted) *counted -= memory.bytes();
}

Status IoMemory::reserve(const Plan& plan, const std::string& name) {
  if (memory.data()) return Status::ok();
  SITU_RETURN_IF_ERROR(assign(&memory, ReservedMemory::of(plan.io_bytes + 64, "for " + name)));
  if (counted) *counted += memory.bytes();
  return Status::ok();
}

Status EncoderRoom::claim(int64_t arena, int64_t more, const std::string& name, bool cuts) {
  if (!budget.is_set) return Status::ok();
  arena = std::max(budget.arena, arena);
  const int64_t needed = arena + *held_bytes + more, slot = states->bytes_per_slot();
  more = needed - budget.taken;
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
    if (!cuts || budget.fixed_slots || slots >= states->capacity()) return no_room();
    while (!states->space(SpaceKind::kAppend).cut(slots))
      if (!prefixes || !prefixes->evict(slots)) return no_room();
    states->give_back();
    budget.left += slots * slot;
  }
  budget.left -= more;
  budget.taken = needed;
  budget.arena = arena;
  return Status::ok();
}

Result<Tensor> EncoderRoom::rows(DType type, const std::vector<int64_t>& dims) {
  struct Held {
    Tensor rows;
    std::shared_ptr<std::atomic<int64_t>> counted, prompts;
    ~Held() {
      *counted -= rows.bytes();
      --*prompts;
    }
  };
  int64_t bytes = dtype_bytes(type);
  for (const int64_t d : dims) bytes *= d;
  SITU_RETURN_IF_ERROR(claim(0, bytes, "pictures and sounds of a prompt", *prompts == 0));
  const std::shared_ptr<Held> held(new Held{{}, held_bytes, prompts});
  ++*prompts;
  held->rows = Tensor::allocate(type, dims);
  *held_bytes += bytes;
  return Tensor::borrow(type, dims, held->rows.view().data, held);
}

Status EncoderProgram::place(const EncoderRoom& room, const std::string& name) {
  if (program) return Status::ok();
  if (plan.arena_bytes > room.arena_bytes)
    return Status::error(Code::kNoRoom, name + ": one run needs " + std::to_string(plan.arena_bytes) +
                                            " bytes of activations, more than " + std::to_string(room.arena_bytes));
  io.counted = room.held_bytes;
  SITU_RETURN_IF_ERROR(io.reserve(plan, name));
  Regions regions = room.regions;
  regions.io = io.memory.data();
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
