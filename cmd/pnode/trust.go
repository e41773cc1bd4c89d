package main

import "github.com/spf13/cobra"

// trustTopic is `pnode help trust`.
func trustTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "trust",
		Short: "Who sees what, and who must be trusted with what",
		Long: `Who sees what in a run that other machines can join:

  members        the text, the weights, and the address, name and devices of every machine
  local network  a node that listens answers programs there that look for pnode (mDNS); with --lan it also
                 tells its name and its run to machines there, which may ask its owner to be let in
  everyone else  encrypted connections between addresses; without an invite nobody is let in
  this machine   keys, weights and text lie in the run's folder, unencrypted, readable by its user alone

Whom to trust with what:

  owners         who may enter and stay, and the end of the run
  leader         plans, and who is taken for gone; the voters elect it
  voters         the log: whoever controls a majority of them controls the run
  members        gradients: frames are checked for form, but nobody computes them again

Members send tensors and settings, never programs. An invite is a secret: whoever has it can join until
it is used up, expires or is revoked. docs/security.md in the source has the attacks that are checked, each with
its test, and what is not checked.`,
	}
}
