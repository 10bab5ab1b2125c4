// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gpu/sluice/test/lab/image"
)

func imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image ARCHIVE --tag NAME:TAG PATH=FILE...",
		Short: "Write an archive of an image from files; PATH=@TARGET makes a symbolic link",
		Args:  cobra.MinimumNArgs(2),
	}
	spec := image.Spec{Files: map[string]string{}, Links: map[string]string{}}
	flags := cmd.Flags()
	flags.StringVar(&spec.Name, "tag", "", "the image's name, with its tag (required)")
	flags.StringArrayVar(&spec.Entrypoint, "entrypoint", nil, "word of the command that containers start with; may be repeated")
	flags.StringArrayVar(&spec.Env, "env", nil, "variable of the containers' environment, as NAME=value; may be repeated")
	flags.StringVar(&spec.User, "user", "", "whom containers run as")
	_ = cmd.MarkFlagRequired("tag")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		for _, word := range args[1:] {
			inside, source, ok := strings.Cut(word, "=")
			if !ok {
				return fmt.Errorf("%q is not as in PATH=FILE", word)
			}
			if target, link := strings.CutPrefix(source, "@"); link {
				spec.Links[inside] = target
				continue
			}
			spec.Files[inside] = source
		}
		return image.Write(args[0], spec)
	}
	return cmd
}
