#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

// This program, run again as child processes. They end with this one, however it ends; signals from
// the terminal reach this process alone.
namespace lipgrad::cli {

class Workers {
 public:
  struct Ended {
    std::size_t job;
    int status = 0;  // what it exited with
    int signal = 0;  // that killed it, 0: none
    double seconds = 0;
  };

  ~Workers();

  // Starts the program with these arguments; what it prints goes to the file `log`, which is
  // emptied. Error when no process can be had.
  void start(std::size_t job, const std::vector<std::string>& arguments, const std::string& log);
  // One that has ended, or nothing after so many milliseconds.
  std::optional<Ended> wait(int milliseconds);
  // Sends a signal to all.
  void signal(int signal);

  std::size_t running() const { return processes_.size(); }
  // The jobs that run, and for how long.
  std::vector<std::pair<std::size_t, double>> elapsed() const;

 private:
  struct Process {
    pid_t pid;
    std::size_t job;
    std::chrono::steady_clock::time_point began;
  };
  std::vector<Process> processes_;
};

}  // namespace lipgrad::cli
