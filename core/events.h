#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace lipgrad {

// A value that TensorBoard draws over the steps: {"loss", 0.693}.
struct Scalar {
  std::string_view tag;
  double value;
};

// Writes an event file for TensorBoard (https://www.tensorflow.org/tensorboard), which finds it
// under --logdir: scalars over steps, in the format of TensorFlow's summaries.
//
// The file's name is events.out.tfevents.<seconds>.<host>.<process>.<count>. TensorBoard reads the
// event files of a directory in the order of their names as one run. So `seconds`, ten digits, is
// the time (since 1970), or one more than the largest in the directory where that is not smaller:
// a new file is always the last one, however quickly processes follow each other and wherever
// clocks were set.
class EventWriter {
 public:
  using Clock = double (*)();  // seconds since 1970, the wall time of events

  struct Options {
    double flush_seconds = 2;  // how long an event may stay in memory when another one comes
    Clock clock = nullptr;     // default: the system's clock
  };

  // Creates a new file in the directory, which must exist.
  explicit EventWriter(const std::string& directory);
  EventWriter(const std::string& directory, Options options);
  // Writes what is left, but never throws: call flush() before, to know that it was written.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  const std::string& path() const { return path_; }

  // TensorBoard forgets what files before this one logged of steps >= `first_step`, which training
  // that resumed logs again. It takes the first such mark of a directory for the beginning, so
  // every run needs one, also one that does not resume.
  void start(std::int64_t first_step);

  // All values of one step, as one event. TensorBoard keeps them as floats: values beyond 3.4e38
  // become infinite. A tag keeps its letters, digits and "_.-/" (all of ASCII); every other byte
  // becomes "_", leading "/" are dropped and an empty tag is "_". TensorBoard groups tags by what
  // stands before the first "/".
  void scalars(std::int64_t step, std::span<const Scalar> values);
  void scalars(std::int64_t step, std::initializer_list<Scalar> values) {
    scalars(step, std::span(values.begin(), values.size()));
  }

  // Hands all events to the operating system, which then has them even when the process is killed.
  // Also called by the functions above when enough time or enough bytes have gathered. The file
  // holds whole events only, also after an error (a full disk, "<path>: cannot write ..."); what
  // was not written then is tried again by the next call.
  void flush();

 private:
  void append(std::string_view event);

  std::string path_, buffer_;
  Clock clock_;
  double flush_seconds_, flushed_at_ = 0;
  std::int64_t written_ = 0;
  int fd_ = -1;
};

}  // namespace lipgrad
