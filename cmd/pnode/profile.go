package main

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"pnode/node/api"
	"pnode/node/progress"
)

func (e environment) profileCommand() *cobra.Command {
	var asJSON, everything bool
	c := &cobra.Command{
		Use:   "profile",
		Short: "Show what plans know of the devices and lines of a run",
		Long: `Show what each node of a run has measured of its devices and of its lines to others, and what the
newest step took beside what the plan expects of these. PLANNED and MEASURED are how long a device
computes in a step; 1.50x means half as long again as planned. Lines are measured by a probe when a
node joins, and by the messages of steps where the plan uses them. Of more than 64 devices the slowest of the plan
are shown.

Devices of a machine without a run: pnode doctor.`,
		Example: `  pnode profile
  pnode profile --dir ~/run7
  pnode profile --json | jq '.links[] | select(.used)'`,
	}
	withNode(c, func(ctx context.Context, client *api.Client) error {
		ask := client.BriefProfiles
		if everything || asJSON {
			ask = client.Profiles
		}
		profiles, err := ask(ctx)
		if err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(e.stdout).Encode(profiles)
		}
		return progress.Profiles(e.stdout, profiles)
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&everything, "all", false, "show each of many devices and lines")
	return c
}
