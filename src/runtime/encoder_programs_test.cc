// Programs of encoders: which are kept, and how they are built beside others.
#include "runtime/encoder_programs.h"

#include <gtest/gtest.h>

#include <thread>

namespace situ {
namespace {

struct Numbered : EncoderProgram {
  explicit Numbered(int n) : number(n) {}
  int number;
};

TEST(EncoderShelf, ThoseUsedLatelyStay) {
  EncoderShelf<Numbered> shelf;
  const auto find = [&](int number) { return shelf.find([&](const Numbered& e) { return e.number == number; }); };
  for (int i = 0; i < 8; ++i) shelf.keep(std::make_shared<Numbered>(i));
  const std::shared_ptr<Numbered> first = find(0), second = find(1);
  for (int i = 8; i < 12; ++i) {
    shelf.keep(std::make_shared<Numbered>(i));
    find(0);
  }
  EXPECT_EQ(find(0), first);
  for (const int gone : {2, 3, 4, 5}) EXPECT_EQ(find(gone), nullptr) << gone;
  for (const int kept : {1, 6, 7, 8, 11}) EXPECT_NE(find(kept), nullptr) << kept;
  const auto held = shelf.newest([](const Numbered& e) { return e.number != 11; });  // whatever comes then
  for (int i = 20; i < 30; ++i) shelf.keep(std::make_shared<Numbered>(i));
  EXPECT_EQ(held->number, 8);
}

TEST(ProgramBuilder, BuildsOneAfterTheOtherBesideOthers) {
  std::atomic<bool> go{false};
  std::atomic<int> at_work{0}, most{0};
  ProgramBuilder builder(4);
  const auto work = [&](ProgramBuilder::Build&, ThreadPool& pool) {
    EXPECT_EQ(pool.threads(), 2);
    most = std::max(most.load(), ++at_work);
    while (!go) std::this_thread::yield();
    --at_work;
    return Status::ok();
  };
  const auto first = builder.start(work), second = builder.start(work);
  const auto failing = builder.start([](ProgramBuilder::Build&, ThreadPool&) -> Status { throw std::bad_alloc(); });
  EXPECT_FALSE(first->done || second->done || failing->done);
  go = true;
  while (!failing->done) std::this_thread::yield();
  EXPECT_TRUE(first->done && second->done && first->status.is_ok());
  EXPECT_EQ(failing->status.code(), Code::kNoRoom);
  EXPECT_EQ(most, 1);
}

// Rows of pictures take of the budget as long as somebody has them, and a request waits for those of others.
TEST(EncoderRoom, RowsOfPromptsAreCountedAsLongAsTheyLast) {
  StateLayout layout;
  layout.pair.rule = StateRule::kAppend;
  layout.type = DType::kF32;
  layout.slot_elements = 4;
  const std::unique_ptr<StatePool> states = std::move(StatePool::create({layout}, {.append = 100})).value();
  EncoderRoom room;
  room.states = states.get();
  room.budget = {.is_set = true, .fixed_slots = true, .left = 1000};
  const auto rows = [&](int64_t count) { return room.rows(DType::kF32, {count, 10}); };
  Result<Tensor> first = rows(15);
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  EXPECT_EQ(first->bytes(), 600);
  EXPECT_EQ(*room.held_bytes, 600);
  EXPECT_EQ(rows(15).status().code(), Code::kNoRoom);
  EXPECT_EQ(room.claim(401, 0, "encoder").code(), Code::kNoRoom);
  EXPECT_TRUE(room.claim(400, 0, "encoder").is_ok());
  EXPECT_EQ(rows(1).status().code(), Code::kNoRoom);  // beside the encoder's
  Tensor other_owner = *first;
  first = Status::error("gone");
  EXPECT_EQ(*room.held_bytes, 600);
  other_owner = Tensor();
  EXPECT_EQ(*room.held_bytes, 0);
  EXPECT_TRUE(rows(15).is_ok());
  // Else the state gives slots, of which a sequence has the last; but none beside rows of others, which end.
  room.budget.fixed_slots = false;
  const Result<Tensor> more = rows(20);
  ASSERT_TRUE(more.is_ok()) << more.status().message();
  EXPECT_EQ(states->capacity(), 100 - 13);  // 200 bytes
  EXPECT_EQ(rows(20).status().code(), Code::kNoRoom);
  EXPECT_EQ(states->capacity(), 87);
  Sequence all(*states);
  ASSERT_EQ(all.append(87)->length, 87);
  EXPECT_EQ(rows(1).status().code(), Code::kNoRoom);
  EXPECT_EQ(states->capacity(), 87);
}

}  // namespace
}  // namespace situ
