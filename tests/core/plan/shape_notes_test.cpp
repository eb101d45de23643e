// SPDX-License-Identifier: Apache-2.0
#include "core/plan/shape_notes.h"

#include <gmock/gmock.h>

namespace pipetwin {
namespace shape_notes_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

AskedShape shape() {
    return {.schedule = "1f1b",
            .micro_batches = 4,
            .samples = 4,
            .data_parallel = 2,
            .tensor_parallel = 2,
            .stages = 2};
}

TEST(ShapeNotes, SayNothingOfKeysThatHaveAnEffect) {
    AskedShape asked = shape();
    asked.sequence_parallel = true;
    asked.shard = "weights";
    asked.prefetch = 3;
    EXPECT_THAT(shape_notes(asked), IsEmpty());
    asked.sequence_parallel = false;
    asked.scatter_boundaries = true;
    EXPECT_THAT(shape_notes(asked), IsEmpty());
}

TEST(ShapeNotes, NameKeysOfDevicesWhereARankHasOne) {
    AskedShape asked = shape();
    asked.tensor_parallel = 1;
    asked.sequence_parallel = true;
    asked.scatter_boundaries = true;
    EXPECT_THAT(shape_notes(asked),
                ElementsAre(HasSubstr("sequence_parallel changes nothing: a rank has one device"),
                            HasSubstr("scatter_boundaries changes nothing: a rank has one")));
}

TEST(ShapeNotes, NameHiddenSumsThatAreNotThere) {
    AskedShape asked = shape();
    asked.tensor_overlap = true;
    EXPECT_THAT(shape_notes(asked), ElementsAre(HasSubstr("where sequence_parallel divides them")));
    asked.sequence_parallel = true;
    EXPECT_THAT(shape_notes(asked), IsEmpty());
    asked.sequence_parallel = false;
    asked.tensor_parallel = 1;
    EXPECT_THAT(shape_notes(asked),
                ElementsAre(HasSubstr("tensor_overlap changes nothing: a rank has one device")));
}

TEST(ShapeNotes, NameGathersThatAreNotThere) {
    AskedShape asked = shape();
    asked.overlap_gather = true;
    asked.data_parallel = 2;
    EXPECT_THAT(shape_notes(asked), ElementsAre(HasSubstr("no weights are gathered")));
    asked.shard = "optimizer";
    EXPECT_THAT(shape_notes(asked), IsEmpty());
    asked.data_parallel = 1;
    EXPECT_THAT(shape_notes(asked),
                ::testing::Contains(HasSubstr("overlap_gather changes nothing: there is one")));
}

TEST(ShapeNotes, NameBoundariesThatAreNotThereOrDividedAlready) {
    AskedShape asked = shape();
    asked.scatter_boundaries = true;
    asked.stages = 1;
    EXPECT_THAT(shape_notes(asked), ElementsAre(HasSubstr("there is one stage")));
    asked.stages = 2;
    asked.sequence_parallel = true;
    EXPECT_THAT(shape_notes(asked), ElementsAre(HasSubstr("has only its part")));
}

TEST(ShapeNotes, NameKeysOfReplicasWhereThereIsOne) {
    AskedShape asked = shape();
    asked.data_parallel = 1;
    asked.shard = "optimizer";
    asked.prefetch = 2;
    EXPECT_THAT(shape_notes(asked),
                ElementsAre(HasSubstr("shard changes nothing: there is one replica"),
                            HasSubstr("prefetch changes nothing")));
}

TEST(ShapeNotes, NameGroupsOfReplicasThatDivideNothing) {
    AskedShape asked = shape();
    asked.shard_group = true;
    EXPECT_THAT(shape_notes(asked),
                ElementsAre(HasSubstr("shard_group changes nothing: replicas divide nothing")));
    asked.shard = "optimizer";
    EXPECT_THAT(shape_notes(asked), IsEmpty());
}

TEST(ShapeNotes, CountMicroBatchesOfUnequalSizes) {
    AskedShape asked = shape();
    asked.micro_batches = 6;
    asked.samples = 16;
    EXPECT_THAT(shape_notes(asked),
                ElementsAre("16 samples in 6 micro-batches: 4 of 3, and 2 of 2"));
}

}  // namespace shape_notes_test
}  // namespace pipetwin
