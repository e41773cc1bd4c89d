package schedule_test

import (
	"fmt"

	"pnode/pipeline/schedule"
)

// The elastic schedule starts as many forwards ahead as a slow link in the middle asks for.
func ExampleElastic() {
	costs := schedule.Costs{
		Stages:     make([]schedule.StageTime, 3),
		Boundaries: make([]schedule.Boundary, 2),
	}
	for i := range costs.Stages {
		costs.Stages[i] = schedule.StageTime{Forward: 1, Input: 1, Weight: 1}
	}
	slow := schedule.Hop{Transfer: 1, Latency: 2}
	costs.Boundaries[1] = schedule.Boundary{Activation: slow, Gradient: slow}

	shape := schedule.Shape{Stages: 3, Micros: 6}
	for _, makeSchedule := range []func() (schedule.Schedule, error){
		func() (schedule.Schedule, error) { return schedule.Depth(shape, 1) },
		func() (schedule.Schedule, error) { return schedule.Elastic(shape, costs, nil) },
	} {
		s, err := makeSchedule()
		if err != nil {
			fmt.Println(err)
			return
		}
		line, err := schedule.Simulate(s, schedule.Timing{Replicas: []schedule.Costs{costs}})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d ns, activations of %v micro-batches\n", line.Makespan, line.PeakLive)
		fmt.Print(line.Grid(1))
	}
	// Output:
	// 42 ns, activations of [3 2 1] micro-batches
	//    0 | 0F0 0F1 0F2                                         0B0   . 0F3 0B1   . 0F4                         0B2   . 0F5 0B3   .                             0B4   .     0B5   .
	//    1 |     1F0 1F1                                 1B0   . 1F2 1B1   . 1F3                         1B2   . 1F4 1B3   . 1F5                         1B4   .     1B5   .
	//    2 |                     2F0 2B0   . 2F1 2B1   .                         2F2 2B2   . 2F3 2B3   .                         2F4 2B4   . 2F5 2B5   .
	// 30 ns, activations of [5 4 1] micro-batches
	//    0 | 0F0 0F1 0F2 0F3 0F4                                 0B0   . 0F5 0B1   .     0B2   .     0B3   .     0B4   .     0B5   .
	//    1 |     1F0 1F1 1F2 1F3                         1B0   . 1F4 1B1   . 1F5 1B2   .     1B3   .     1B4   .     1B5   .
	//    2 |                     2F0 2B0   . 2F1 2B1   . 2F2 2B2   . 2F3 2B3   . 2F4 2B4   . 2F5 2B5   .
}

// A schedule is text, a line for each worker; passes add the messages between them.
func ExampleWithCommunication() {
	s, err := schedule.Depth(schedule.Shape{Stages: 2, Micros: 2}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(schedule.Validate(s, schedule.Limits{}))
	fmt.Print(schedule.WithCommunication(s))
	// Output:
	// <nil>
	// 0F0 0SA0 0F1 0SA1 0RG0 0B0 0RG1 0B1
	// 1RA0 1F0 1B0 1SG0 1RA1 1F1 1B1 1SG1
}
