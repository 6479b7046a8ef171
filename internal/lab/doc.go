// Package lab helps tests, benchmarks, the simulator's search and the demo to run
// processes, and to measure these on a shared and possibly busy machine:
//
//   - [Child] is a process that does not outlive the program that started it;
//   - [Service] is a Child whose methods the program calls, and [ServeCalls] serves them in the child;
//   - [SchedulingDelay] measures how late a process runs, so that a test can subtract this time;
//   - [CPU], [PeakMemory], [Resident] and [OpenFiles] measure the resources of a process;
//   - [Histogram] counts durations;
//   - [Proxy] is a network that a test makes slow, silent or unreachable;
//   - [JudgeWindows] compares the admitted units of each window with a bound.
//
// The packages of the product do not import lab except in tests.
package lab
